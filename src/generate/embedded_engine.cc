#include "generate/embedded_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/files.h"
#include "base/memory_amount.h"
#include "device/threads.h"
#include "formats/transformers_target.h"
#include "generate/answer_file.h"
#include "target/target_forward.h"
#include "verifier/widened_copy.h"

namespace eaglet {
namespace {

constexpr int kParallelNative = 64, kParallelLlama = 16;

int parallel_of(const GenerateOptions& options, bool native) {
  if (options.parallel > 0) return options.parallel;
  return native ? kParallelNative : kParallelLlama;
}

SamplingOptions sampling_of(const GenerateOptions& o) {
  return {o.temperature, o.top_p, o.top_k, o.min_p, o.repetition_penalty};
}

/// The engine that the answers in the file were made with; empty when there are none.
Result<std::string> engine_of_answers(const std::string& path) {
  const std::string beside = side_file(path, "settings.json");
  if (!path_exists(beside) || !path_exists(path)) return std::string();
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(path));
  if (bytes == 0) return std::string();
  EAGLET_ASSIGN_OR_RETURN(const Json settings, read_json_file(beside));
  return settings.value("engine", "llama");  // files of before there was a choice
}

struct NativeNeeds {
  std::uint64_t memory = 0, weights = 0, step = 0;
  bool fits() const { return memory > weights + step; }
};

Result<NativeNeeds> native_needs(const GenerateOptions& options, const TargetConfig& config,
                                 ComputeType type) {
  NativeNeeds needs;
  needs.memory = available_memory_bytes() / 2;
  if (!options.memory.empty()) {
    EAGLET_ASSIGN_OR_RETURN(needs.memory, parse_memory(options.memory));
  }
  needs.weights = ResidentTarget::weight_bytes(config, type);
  const int parallel = parallel_of(options, true);
  needs.step = ResidentTarget::step_bytes(config, NativeGeneratorOptions().prompt_rows + parallel, parallel);
  return needs;
}

struct Choice {
  bool native = false;
  std::string why;  // of libllama, when nobody asked for it
};

/// Our own forward where it knows the model and the memory holds it.
Result<Choice> choose(const GenerateOptions& options) {
  if (options.engine == "native") return Choice{true, {}};
  if (options.engine == "llama") return Choice{};
  if (options.engine != "auto")
    return Status(StatusCode::kUsage, "there is no engine '" + options.engine + "'", "--engine",
                  "use auto, native or llama");
  EAGLET_ASSIGN_OR_RETURN(const std::string before, engine_of_answers(options.output_path));
  if (!before.empty()) return Choice{before == "native", "the answers in the file are libllama's"};
  if (options.weights != "auto") return Choice{false, "--weights is given"};
  if (is_directory(options.model_path)) return Choice{true, {}};  // libllama reads none
  const auto files = open_target_files(options.model_path);
  if (!files.ok()) return Choice{false, "the native engine: " + files.status().what()};
  EAGLET_ASSIGN_OR_RETURN(const ComputeType type, steady_compute_type(options.compute_type));
  EAGLET_ASSIGN_OR_RETURN(const NativeNeeds needs, native_needs(options, files->config, type));
  if (!needs.fits() && options.memory.empty())
    return Choice{false, "the native engine's weights do not fit half of the free memory"};
  return Choice{true, {}};
}

Status check_flags(const GenerateOptions& options, bool native) {
  const auto refuse = [](const char* flag, const char* engine) {
    return Status(StatusCode::kUsage, std::string(flag) + " is of the other engine", "eaglet generate",
                  std::string("leave it out, or give --engine ") + engine);
  };
  if (native && options.weights != "auto") return refuse("--weights", "llama");
  if (!native && options.compute_type != "auto") return refuse("--compute-type", "native");
  if (!native && !options.memory.empty()) return refuse("--memory", "native");
  if (!native && !options.draft_path.empty()) return refuse("--draft", "native");
  return {};
}

}  // namespace

Result<EmbeddedEngine> EmbeddedEngine::open(const GenerateOptions& options, Progress& progress) {
  EmbeddedEngine engine(options);
  EAGLET_ASSIGN_OR_RETURN(engine.facts_, read_target_facts(options.model_path));
  EAGLET_ASSIGN_OR_RETURN(const Choice choice, choose(options));
  EAGLET_RETURN_IF_ERROR(check_flags(options, choice.native));
  if (!choice.native && options.keep.required)
    return Status(StatusCode::kUsage,
                  "states are kept by the native engine" + (choice.why.empty() ? "" : ": " + choice.why),
                  "eaglet generate", "leave --keep-states out and run eaglet extract afterwards");
  EAGLET_RETURN_IF_ERROR(choice.native ? engine.load_native(progress)
                                       : engine.load_llama(progress, choice.why));
  return engine;
}

Status EmbeddedEngine::load_llama(Progress& progress, const std::string& why) {
  if (is_directory(options_.model_path))
    return Status(StatusCode::kConfig, "libllama reads GGUF files, this is a folder", options_.model_path,
                  "give --engine native, or convert the model");
  if (!options_.tokenizer_path.empty())
    return Status(StatusCode::kUsage, "--tokenizer needs --engine native", "eaglet generate",
                  "libllama uses the tokenizer of the file it runs");
  EAGLET_ASSIGN_OR_RETURN(const TargetWeightsAs weights, weights_as_from_name(options_.weights));
  EAGLET_ASSIGN_OR_RETURN(llama_, Target::load(options_.model_path, {weights, options_.threads}));
  tokenizer_ = llama_.get();
  progress.note(
      fmt::format("engine libllama, weights {}{}", llama_->weights_as(), why.empty() ? "" : ": " + why));
  return {};
}

namespace {

/// A draft reads this target's states and speaks its tokens. Weights may be another copy of the same model
/// (other quantisation): only the shapes must agree.
Status check_draft(const DraftConfig& draft, const TargetConfig& target, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    return Status(StatusCode::kConfig, what, path, "give a draft that was trained for this target");
  };
  if (draft.target_hidden != target.hidden)
    return refuse(fmt::format("the draft reads states of width {}, the target's are {}", draft.target_hidden,
                              target.hidden));
  if (draft.vocab != target.vocab)
    return refuse(fmt::format("the draft's target has {} tokens, this one {}", draft.vocab, target.vocab));
  for (const std::int32_t layer : draft.aux_layers)
    if (layer > target.num_layers)
      return refuse(fmt::format("the draft reads the states of layer {} of {}", layer, target.num_layers));
  return {};
}

}  // namespace

Status EmbeddedEngine::load_native(Progress& progress) {
  set_num_threads(options_.threads);
  const std::string tokenizer =
      options_.tokenizer_path.empty() ? options_.model_path : options_.tokenizer_path;
  EAGLET_ASSIGN_OR_RETURN(own_tokens_, TargetTokens::open(tokenizer));
  tokenizer_ = own_tokens_.get();
  EAGLET_ASSIGN_OR_RETURN(const TargetFiles files, open_target_files(options_.model_path));
  // Both are rows of embeddings (unused ones too), so the same model's other file has exactly as many.
  if (tokenizer_->facts().vocab != files.config.vocab)
    return Status(StatusCode::kConfig,
                  fmt::format("the tokenizer is of a model with {} tokens, the target's embeddings have {}",
                              tokenizer_->facts().vocab, files.config.vocab),
                  tokenizer, "give the tokenizer of this model");
  EAGLET_ASSIGN_OR_RETURN(const ComputeType type, steady_compute_type(options_.compute_type));
  EAGLET_ASSIGN_OR_RETURN(const NativeNeeds needs, native_needs(options_, files.config, type));
  const auto amount = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  if (!needs.fits())
    return Status(
        StatusCode::kNoSpace,
        fmt::format("weights of {} and a step's {} do not fit {} of memory", amount(needs.weights),
                    amount(needs.step), amount(needs.memory)),
        options_.model_path,
        "give more --memory, or --engine llama, or ask a server (--server): generating needs all weights "
        "for every token");
  cache_bytes_ = needs.memory - needs.weights - needs.step;
  DraftWeights draft;  // a draft that cannot be is told before the target is read, which may take minutes
  if (!options_.draft_path.empty()) {
    EAGLET_ASSIGN_OR_RETURN(draft, read_draft(options_.draft_path, false, nullptr));
    EAGLET_RETURN_IF_ERROR(check_draft(draft.config, files.config, options_.draft_path));
  }
  progress.note(fmt::format("engine native: products in {}, weights {}, caches of up to {}",
                            compute_type_name(type), amount(needs.weights), amount(cache_bytes_)));
  progress.begin("load", static_cast<std::uint64_t>(files.config.num_layers), "layers", 0);
  const double start = monotonic_seconds();
  EAGLET_ASSIGN_OR_RETURN(
      resident_, ResidentTarget::load(options_.model_path, type, [&](std::int64_t done, std::int64_t) {
        progress.update(static_cast<std::uint64_t>(done), "");
        return Status();
      }));
  progress.end(fmt::format("{} layers in {:.1f} s", files.config.num_layers, monotonic_seconds() - start));
  return options_.draft_path.empty() ? Status() : load_draft(std::move(draft), &cache_bytes_, progress);
}

Status EmbeddedEngine::load_draft(DraftWeights weights, std::uint64_t* left, Progress& progress) {
  if (!weights.config.target_identity.empty() && weights.config.target_identity != facts_.identity)
    progress.note("the draft was trained on another copy of the target; its tokens are checked all the same");
  EAGLET_ASSIGN_OR_RETURN(
      draft_, ResidentDraft::make(std::move(weights), resident_->embeddings(), resident_->compute_type()));
  if (draft_->bytes() >= *left)
    return Status(StatusCode::kNoSpace,
                  fmt::format("the draft needs {}, {} are left beside the target",
                              human_bytes(static_cast<double>(draft_->bytes())),
                              human_bytes(static_cast<double>(*left))),
                  options_.draft_path, "give more --memory, or leave --draft out");
  *left -= draft_->bytes();
  progress.note(fmt::format("draft: {} tokens proposed at a time, vocabulary {}", options_.draft_length,
                            draft_->vocab().size()));
  return {};
}

Json EmbeddedEngine::settings() const {
  if (native()) return {{"engine", "native"}, {"compute_type", compute_type_name(resident_->compute_type())}};
  return {{"engine", "llama"}, {"weights_as", llama_->weights_as()}};
}

int EmbeddedEngine::parallel() const {
  return parallel_of(options_, native());
}

NativeGeneratorOptions EmbeddedEngine::native_options(std::size_t requests) const {
  NativeGeneratorOptions how;
  how.parallel = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(parallel()), requests));
  how.cache_bytes = cache_bytes_;
  how.sampling = sampling_of(options_);
  how.ends = [this](std::int32_t token) { return tokenizer_->ends(token); };
  how.draft = draft_.get();
  how.draft_length = options_.draft_length;
  return how;
}

Result<std::unique_ptr<Generator>> EmbeddedEngine::make_generator(
    std::size_t requests, std::int64_t longest_sequence, const std::vector<std::int32_t>& kept_layers) const {
  NativeGeneratorOptions how = native_options(requests);
  if (!native()) return Generator::create(*llama_, {how.parallel, longest_sequence, sampling_of(options_)});
  how.kept_layers = kept_layers;
  return make_native_generator(resident_.get(), how);
}

std::unique_ptr<Generator> EmbeddedEngine::make_drafting_generator(std::size_t requests,
                                                                   std::int64_t draft_length) const {
  NativeGeneratorOptions how = native_options(requests);
  how.draft_length = draft_length;
  if (draft_length == 0) how.draft = nullptr;
  return make_native_generator(resident_.get(), how);
}

Result<std::vector<float>> EmbeddedEngine::logits_after(const std::vector<std::int32_t>& tokens,
                                                        std::size_t together) const {
  SequenceCache cache = resident_->make_cache(static_cast<std::int64_t>(tokens.size()));
  std::vector<NextTokens> next(1);
  for (std::size_t done = 0; done < tokens.size(); done += next[0].ids.size()) {
    const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(done);
    next[0] = {&cache, {from, from + static_cast<std::ptrdiff_t>(done == 0 ? together : 1)}, 1};
    EAGLET_RETURN_IF_ERROR(resident_->step(next));
  }
  const float* logits = resident_->logits(0);
  return std::vector<float>(logits, logits + resident_->config().vocab);
}

}  // namespace eaglet
