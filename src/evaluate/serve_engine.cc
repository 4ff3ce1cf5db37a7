#include "evaluate/serve_engine.h"

#include <common.h>
#include <fmt/format.h>
#include <gguf.h>
#include <llama-cpp.h>
#include <llama.h>
#include <log.h>
#include <speculative.h>

#include <algorithm>
#include <array>
#include <exception>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "verifier/llama_log.h"

namespace eaglet {
namespace {

constexpr std::int32_t kBatchTokens = 512;  // a prompt is processed in parts of this many tokens
constexpr llama_seq_id kSequence = 0;

// The architectures whose graph gives out its layers' inputs in llama.cpp 0c1e570; asking another for them
// ends the process. Grows with llama.cpp: the files in its src/models that fill t_layer_inp.
constexpr std::array kTappedArchitectures = {
    "bailingmoe3",  "deepseek4", "gemma4",     "gpt-oss", "hunyuan-dense",  "hunyuan_vl",
    "lfm2",         "lfm2moe",   "llama",      "mimo2",   "minimax-01",     "minimax-m2",
    "muse-glimmer", "nanbeige",  "nemotron_h", "qwen3",   "nemotron_h_moe", "qwen3moe",
    "qwen3next",    "qwen35",    "qwen35moe",  "qwen4exp"};

Status failed(std::string what, const std::string& where) {
  const std::string reason = take_llama_error();
  if (!reason.empty()) what += fmt::format(" ({})", reason);
  return Status(StatusCode::kUnavailable, std::move(what), where);
}

struct FreeGguf {
  void operator()(gguf_context* context) const { gguf_free(context); }
};

struct DraftFacts {
  std::vector<std::int32_t> target_layers;
  std::int64_t target_hidden = 0, vocab = 0;
};

// llama.cpp aborts the process when a draft does not fit its target, so the draft's header is read first.
Result<DraftFacts> read_draft_facts(const std::string& path) {
  if (!path_exists(path)) return Status(StatusCode::kNotFound, "no such draft", path);
  const std::unique_ptr<gguf_context, FreeGguf> gguf(gguf_init_from_file(path.c_str(), {true, nullptr}));
  if (gguf == nullptr) return Status(StatusCode::kDataLoss, "not a GGUF file, or a damaged one", path);
  const std::int64_t layers = gguf_find_key(gguf.get(), "eagle3.target_layers");
  const std::int64_t hidden = gguf_find_key(gguf.get(), "eagle3.target_hidden_size");
  const bool is_draft = layers >= 0 && gguf_get_kv_type(gguf.get(), layers) == GGUF_TYPE_ARRAY &&
                        hidden >= 0 && gguf_get_kv_type(gguf.get(), hidden) == GGUF_TYPE_UINT32 &&
                        (gguf_get_arr_type(gguf.get(), layers) == GGUF_TYPE_INT32 ||
                         gguf_get_arr_type(gguf.get(), layers) == GGUF_TYPE_UINT32);
  if (!is_draft) {
    return Status(StatusCode::kConfig, "not an eagle3 draft", path,
                  "make one with eaglet export --format gguf");
  }
  DraftFacts facts;
  const auto* ids = static_cast<const std::int32_t*>(gguf_get_arr_data(gguf.get(), layers));
  facts.target_layers.assign(ids, ids + gguf_get_arr_n(gguf.get(), layers));
  facts.target_hidden = gguf_get_val_u32(gguf.get(), hidden);
  const std::int64_t tokens = gguf_find_key(gguf.get(), "tokenizer.ggml.tokens");
  if (tokens >= 0 && gguf_get_kv_type(gguf.get(), tokens) == GGUF_TYPE_ARRAY) {
    facts.vocab = static_cast<std::int64_t>(gguf_get_arr_n(gguf.get(), tokens));
  }
  return facts;
}

std::int32_t best_token(const float* logits, std::int32_t vocab) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + vocab) - logits);
}

using SpeculativePointer = common_speculative_ptr;

class LlamaServeEngine : public ServeEngine {
 public:
  LlamaServeEngine(std::string target_path, std::string draft_path)
      : target_path_(std::move(target_path)), draft_path_(std::move(draft_path)) {}

  Status load(std::int64_t max_context, std::int64_t max_draft_length, int threads) {
    quiet_llama_log();
    common_log_pause(common_log_main());  // the common library has a log of its own
    fill_parameters(max_context, max_draft_length, threads);
    EAGLET_RETURN_IF_ERROR(load_target());
    EAGLET_RETURN_IF_ERROR(check_draft());
    return load_draft();
  }

  Result<EngineAnswer> plain(const std::vector<std::int32_t>& prompt, std::int64_t max_tokens) override {
    return answer(plain_.get(), prompt, max_tokens, nullptr);
  }

  Result<EngineAnswer> drafted(const std::vector<std::int32_t>& prompt, std::int64_t max_tokens,
                               std::int64_t draft_length) override {
    try {
      common_params_speculative speculative = params_.speculative;
      speculative.draft.n_max = static_cast<std::int32_t>(draft_length);
      speculative.draft.ctx_tgt = target_.get();
      speculative.draft.ctx_dft = draft_->context();
      llama_memory_clear(llama_get_memory(draft_->context()), true);
      const SpeculativePointer drafter(common_speculative_init(speculative, 1));
      if (drafter == nullptr) return failed("llama.cpp did not start speculative decoding", draft_path_);
      return answer(target_.get(), prompt, max_tokens, drafter.get());
    } catch (const std::exception& error) {
      return Status(StatusCode::kUnavailable, fmt::format("llama.cpp gave up: {}", error.what()),
                    draft_path_);
    }
  }

  Result<std::vector<float>> logits_after(const std::vector<std::int32_t>& tokens,
                                          std::size_t together) override {
    llama_memory_clear(llama_get_memory(plain_.get()), true);
    common_batch batch(plain_.get());
    EAGLET_RETURN_IF_ERROR(
        process_prompt(plain_.get(), {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(together)},
                       nullptr, batch));
    for (std::size_t i = together; i < tokens.size(); ++i) {
      EAGLET_RETURN_IF_ERROR(pass(plain_.get(), tokens[i], static_cast<llama_pos>(i), {}, nullptr, batch));
    }
    const float* logits = llama_get_logits_ith(plain_.get(), -1);
    return std::vector<float>(logits, logits + vocab_size_);
  }

 private:
  void fill_parameters(std::int64_t max_context, std::int64_t max_draft_length, int threads) {
    params_.n_ctx = static_cast<std::int32_t>(max_context);
    params_.n_batch = params_.n_ubatch = kBatchTokens;
    params_.n_parallel = 1;
    params_.cpuparams.n_threads =
        threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    params_.cpuparams_batch.n_threads = params_.cpuparams.n_threads;
    params_.model.path = target_path_;
    params_.speculative.types = {COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3};
    params_.speculative.draft.mparams.path = draft_path_;
    params_.speculative.draft.n_max = static_cast<std::int32_t>(max_draft_length);
    const auto limits =
        common_speculative_get_output_limits(params_.n_batch, 1, params_.speculative.draft.n_max);
    params_.n_outputs_max = limits.total;
    params_.n_outputs_max_per_seq = limits.per_seq;
  }

  Status load_target() {
    if (!path_exists(target_path_))
      return Status(StatusCode::kNotFound, "no such target model", target_path_);
    model_.reset(llama_model_load_from_file(target_path_.c_str(), common_model_params_to_llama(params_)));
    if (model_ == nullptr) {
      const std::string reason = take_llama_error();
      return Status(StatusCode::kDataLoss,
                    "llama.cpp cannot load the target" + (reason.empty() ? "" : ": " + reason), target_path_);
    }
    vocab_ = llama_model_get_vocab(model_.get());
    vocab_size_ = llama_vocab_n_tokens(vocab_);
    EAGLET_RETURN_IF_ERROR(check_tapped());
    const llama_context_params context = common_context_params_to_llama(params_);
    target_.reset(llama_init_from_model(model_.get(), context));
    plain_.reset(llama_init_from_model(model_.get(), context));
    if (target_ == nullptr || plain_ == nullptr) {
      return Status(StatusCode::kNoSpace, fmt::format("no room for a context of {} tokens", params_.n_ctx),
                    target_path_);
    }
    // Speculation takes back rejected tokens; a recurrent state cannot do that without checkpoints.
    const auto kind = common_context_can_seq_rm(target_.get());
    if (kind != COMMON_CONTEXT_SEQ_RM_TYPE_PART && kind != COMMON_CONTEXT_SEQ_RM_TYPE_RS) {
      return Status(StatusCode::kConfig,
                    "this target's memory cannot take back tokens, which this measurement needs",
                    target_path_, "measure with llama-server, which makes checkpoints for such models");
    }
    return {};
  }

  Status check_tapped() const {
    char name[64] = {};
    llama_model_meta_val_str(model_.get(), "general.architecture", name, sizeof(name));
    const auto known = std::find(kTappedArchitectures.begin(), kTappedArchitectures.end(), std::string(name));
    if (known != kTappedArchitectures.end()) return {};
    return Status(
        StatusCode::kConfig,
        fmt::format("llama.cpp cannot take layer states of a \"{}\" model, which an EAGLE-3 draft needs",
                    name),
        target_path_, "serve this target with vLLM (eaglet export --format speculators)");
  }

  Status check_draft() const {
    EAGLET_ASSIGN_OR_RETURN(const DraftFacts facts, read_draft_facts(draft_path_));
    const std::int64_t hidden = llama_model_n_embd(model_.get()), layers = llama_model_n_layer(model_.get());
    const std::string todo = "give the target that the draft was trained for";
    if (facts.target_hidden != hidden) {
      return Status(
          StatusCode::kConfig,
          fmt::format("the draft reads states of width {}, the target's are {}", facts.target_hidden, hidden),
          draft_path_, todo);
    }
    if (facts.vocab != vocab_size_) {
      return Status(StatusCode::kConfig,
                    fmt::format("the draft speaks {} tokens, the target {}", facts.vocab, vocab_size_),
                    draft_path_, todo);
    }
    for (const std::int32_t layer : facts.target_layers) {
      if (layer >= 0 && layer <= layers) continue;
      return Status(StatusCode::kConfig,
                    fmt::format("the draft reads layer {} of a target with {}", layer, layers), draft_path_,
                    todo);
    }
    return {};
  }

  Status load_draft() {
    try {
      common_params draft = common_base_params_to_speculative(params_);
      draft_ = common_speculative_init_from_params(draft, model_.get(), target_.get());
    } catch (const std::exception& error) {
      return Status(StatusCode::kUnavailable, fmt::format("llama.cpp gave up: {}", error.what()),
                    draft_path_);
    }
    if (draft_ == nullptr || draft_->context() == nullptr) {
      const std::string reason = take_llama_error();
      return Status(StatusCode::kDataLoss,
                    "llama.cpp cannot load the draft" + (reason.empty() ? "" : ": " + reason), draft_path_);
    }
    return {};
  }

  // One pass of `context` over `batch`, fed to the drafter too.
  Status process(llama_context* context, common_speculative* drafter, common_batch& batch) const {
    const std::int32_t code = llama_process(context, LLAMA_PROCESS_TYPE_DECODE, batch.get());
    if (code != 0)
      return failed(fmt::format("llama.cpp could not process a batch (code {})", code), target_path_);
    if (!common_speculative_process(drafter, batch))
      return failed("the draft could not process a batch", draft_path_);
    return {};
  }

  Status process_prompt(llama_context* context, const std::vector<std::int32_t>& prompt,
                        common_speculative* drafter, common_batch& batch) const {
    for (std::size_t begin = 0; begin < prompt.size(); begin += kBatchTokens) {
      const std::size_t end = std::min(prompt.size(), begin + kBatchTokens);
      batch.clear();
      for (std::size_t i = begin; i < end; ++i) {
        batch.add(prompt[i], static_cast<llama_pos>(i), kSequence, i + 1 == prompt.size());
      }
      EAGLET_RETURN_IF_ERROR(process(context, drafter, batch));
    }
    return {};
  }

  Status pass(llama_context* context, std::int32_t last, llama_pos position, const llama_tokens& draft,
              common_speculative* drafter, common_batch& batch) const {
    batch.clear();
    batch.add(last, position, kSequence, true);
    for (std::size_t i = 0; i < draft.size(); ++i) {
      batch.add(draft[i], position + 1 + static_cast<llama_pos>(i), kSequence, true);
    }
    return process(context, drafter, batch);
  }

  // The target's own tokens along the draft: they agree with it up to the last one.
  llama_tokens agreed(llama_context* context, const llama_tokens& draft) const {
    llama_tokens tokens;
    for (std::size_t i = 0; i <= draft.size(); ++i) {
      tokens.push_back(best_token(llama_get_logits_ith(context, static_cast<std::int32_t>(i)), vocab_size_));
      if (i == draft.size() || tokens.back() != draft[i]) break;
    }
    return tokens;
  }

  llama_tokens make_draft(common_speculative* drafter, std::int32_t last, std::int64_t position,
                          std::int64_t longest, const llama_tokens& past) const {
    llama_tokens draft;
    if (drafter == nullptr || longest < 1) return draft;
    auto& request = common_speculative_get_draft_params(drafter, kSequence);
    request = {};
    request.drafting = true;
    request.n_max = static_cast<std::int32_t>(longest);
    request.pos0 = static_cast<llama_pos>(position);
    request.id_last = last;
    request.prompt = &past;
    request.result = &draft;
    common_speculative_draft(drafter);
    // What the draft wrote into its own memory is made again from the target's states in the verifying pass.
    llama_memory_seq_rm(llama_get_memory(draft_->context()), kSequence, static_cast<llama_pos>(position), -1);
    return draft;
  }

  // Adds tokens until an end token; counts the drafted ones among them. False when the answer is over.
  bool keep(const llama_tokens& tokens, EngineAnswer* answer) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      answer->tokens.push_back(tokens[i]);
      if (i + 1 < tokens.size()) {
        ++answer->accepted;
        if (answer->accepted_at.size() <= i) answer->accepted_at.resize(i + 1, 0);
        ++answer->accepted_at[i];
      }
      if (llama_vocab_is_eog(vocab_, tokens[i])) return false;
    }
    return true;
  }

  Result<EngineAnswer> answer(llama_context* context, const std::vector<std::int32_t>& prompt,
                              std::int64_t max_tokens, common_speculative* drafter) {
    llama_memory_clear(llama_get_memory(context), true);
    common_batch batch(context);
    EAGLET_RETURN_IF_ERROR(process_prompt(context, prompt, drafter, batch));
    common_speculative_begin(drafter, kSequence, prompt);
    const double begin = monotonic_seconds();
    EngineAnswer result;
    llama_tokens past = prompt;
    bool going = keep({best_token(llama_get_logits_ith(context, -1), vocab_size_)}, &result);
    while (going && static_cast<std::int64_t>(result.tokens.size()) < max_tokens) {
      if (interrupted()) return Status(StatusCode::kInterrupted, "stopped while serving");
      const auto position = static_cast<std::int64_t>(past.size());
      const std::int64_t left = max_tokens - static_cast<std::int64_t>(result.tokens.size());
      const std::int32_t last = result.tokens.back();
      const llama_tokens draft = make_draft(drafter, last, position, left - 1, past);
      EAGLET_RETURN_IF_ERROR(pass(context, last, static_cast<llama_pos>(position), draft, drafter, batch));
      const llama_tokens tokens = agreed(context, draft);
      ++result.passes;
      result.drafted += static_cast<std::int64_t>(draft.size());
      if (!draft.empty())
        common_speculative_accept(drafter, kSequence, static_cast<std::uint16_t>(tokens.size() - 1));
      past.push_back(last);
      past.insert(past.end(), tokens.begin(), tokens.end() - 1);
      llama_memory_seq_rm(llama_get_memory(context), kSequence, static_cast<llama_pos>(past.size()), -1);
      if (drafter != nullptr) {
        llama_memory_seq_rm(llama_get_memory(draft_->context()), kSequence,
                            static_cast<llama_pos>(past.size()), -1);
      }
      going = keep(tokens, &result);
    }
    result.seconds = monotonic_seconds() - begin;
    return result;
  }

  std::string target_path_, draft_path_;
  common_params params_;
  llama_model_ptr model_;
  const llama_vocab* vocab_ = nullptr;
  std::int32_t vocab_size_ = 0;
  llama_context_ptr target_, plain_;
  common_speculative_init_result_ptr draft_;  // after target_: it goes first
};

}  // namespace

Result<std::unique_ptr<ServeEngine>> ServeEngine::load(const std::string& target_path,
                                                       const std::string& draft_path,
                                                       std::int64_t max_context,
                                                       std::int64_t max_draft_length, int threads) {
  auto engine = std::make_unique<LlamaServeEngine>(target_path, draft_path);
  EAGLET_RETURN_IF_ERROR(engine->load(max_context, max_draft_length, threads));
  return std::unique_ptr<ServeEngine>(std::move(engine));
}

}  // namespace eaglet
