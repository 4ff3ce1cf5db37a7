#include "train/draft_setup.h"

#include <fmt/format.h>

#include <map>

#include "formats/json.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

// The transformers class of a GGUF architecture; servers read it from the speculators config.
std::string transformers_class(const std::string& architecture) {
  static const std::map<std::string, std::string> kClasses = {
      {"llama", "LlamaForCausalLM"},          {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"},          {"qwen3moe", "Qwen3MoeForCausalLM"},
      {"qwen2moe", "Qwen2MoeForCausalLM"},    {"gemma2", "Gemma2ForCausalLM"},
      {"gemma3", "Gemma3ForCausalLM"},        {"phi3", "Phi3ForCausalLM"},
      {"deepseek2", "DeepseekV3ForCausalLM"}, {"gpt-oss", "GptOssForCausalLM"},
      {"olmo2", "Olmo2ForCausalLM"},          {"granite", "GraniteForCausalLM"},
      {"smollm3", "SmolLM3ForCausalLM"}};
  const auto it = kClasses.find(architecture);
  return it == kClasses.end() ? architecture : it->second;
}

Status mismatch(const std::string& what, const std::string& todo) {
  return Status(StatusCode::kInvalidArgument, what, {}, todo);
}

// A flag of the options against the draft's own: only a flag that was set can contradict.
Status check_flag(const char* flag, bool asked, bool draft_has) {
  if (!asked || draft_has) return {};
  return mismatch(fmt::format("{} is asked for, but the draft was trained without it", flag),
                  fmt::format("leave {} out: with --from the draft decides", flag));
}

Status check_number(const char* flag, std::int64_t asked, std::int64_t not_set, std::int64_t draft_has) {
  if (asked == not_set || asked == draft_has) return {};
  return mismatch(fmt::format("{} {} is asked for, but the draft has {}", flag, asked, draft_has),
                  fmt::format("leave {} out: with --from the draft decides", flag));
}

// 0 where a layer has full attention.
std::vector<std::int64_t> windows_of_layers(const TrainOptions& o) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(o.num_layers),
                                    o.sliding_layers.empty() ? o.sliding_window : 0);
  for (const std::int64_t layer : o.sliding_layers)
    windows[static_cast<std::size_t>(layer)] = o.sliding_window;
  return windows;
}

Status check_options_against(const TrainOptions& o, const DraftConfig& c) {
  EAGLET_RETURN_IF_ERROR(
      check_flag("--norm-before-residual", o.norm_before_residual, c.norm_before_residual));
  EAGLET_RETURN_IF_ERROR(check_flag("--norm-before-fc", o.norm_before_fc, c.norm_before_fc));
  EAGLET_RETURN_IF_ERROR(check_flag("--fc-norm", o.fc_norm, c.fc_norm));
  EAGLET_RETURN_IF_ERROR(check_flag("--norm-output", o.norm_output, c.norm_output));
  EAGLET_RETURN_IF_ERROR(check_flag("--draft-arch qwen3", o.draft_arch == "qwen3", c.qk_norm));
  EAGLET_RETURN_IF_ERROR(check_flag("--attention-bias", o.attention_bias, c.attention_bias));
  EAGLET_RETURN_IF_ERROR(check_flag("--mlp-bias", o.mlp_bias, c.mlp_bias));
  EAGLET_RETURN_IF_ERROR(check_number("--hidden-size", o.hidden_size, 0, c.hidden));
  EAGLET_RETURN_IF_ERROR(check_number("--draft-vocab-size", o.draft_vocab_size, 0, c.draft_vocab));
  EAGLET_RETURN_IF_ERROR(check_number("--intermediate-size", o.intermediate_size, 0, c.intermediate));
  EAGLET_RETURN_IF_ERROR(check_number("--num-layers", o.num_layers, 1, c.num_layers));
  if (o.sliding_window == 0 || windows_of_layers(o) == c.sliding_window) return {};
  return mismatch(fmt::format("--sliding-window {} is asked for, but the draft's layers have windows of [{}]",
                              o.sliding_window, fmt::join(c.sliding_window, ", ")),
                  "leave --sliding-window and --sliding-layers out: with --from the draft decides");
}

// A copy of the target's embeddings need not be carried in every checkpoint. bf16 is what such copies are
// stored in.
void drop_equal_embeddings(const std::vector<float>& target, DraftWeights* draft) {
  if (draft->embed_tokens.size() != target.size()) return;
  for (std::size_t i = 0; i < target.size(); ++i)
    if (f32_to_bf16(draft->embed_tokens[i]) != f32_to_bf16(target[i])) return;
  draft->embed_tokens = {};
}

void describe(const LoadReport& report, const std::string& from, std::vector<std::string>* notes) {
  notes->push_back(fmt::format("warm start from {}: {} tensors loaded, {} skipped", from,
                               report.loaded.size(), report.skipped.size()));
  notes->push_back(fmt::format("  loaded: {}", fmt::join(report.loaded, ", ")));
  for (const auto& skipped : report.skipped)
    notes->push_back(fmt::format("  skipped {}: {}", skipped.name, skipped.reason));
  for (const auto& missing : report.missing)
    notes->push_back(fmt::format("  not in the file, {}: {}", missing.name, missing.reason));
  for (const std::string& note : report.notes) notes->push_back("  " + note);
}

}  // namespace

DraftConfig draft_config_for(const TrainOptions& options, const TargetFacts& target,
                             const StoreHeader& header, std::int64_t draft_vocab) {
  DraftConfig c;
  c.target_hidden = target.hidden;
  c.hidden = options.hidden_size > 0 ? options.hidden_size : target.hidden;
  c.num_heads = target.num_heads;  // head_dim and the number of heads are free of the width
  c.num_kv_heads = target.num_kv_heads;
  c.head_dim = target.head_dim;
  c.intermediate = options.intermediate_size > 0 ? options.intermediate_size : target.intermediate;
  c.num_layers = options.num_layers;
  c.vocab = target.vocab;
  c.draft_vocab = draft_vocab;
  c.aux_layers = header.aux_layers;
  c.rms_norm_eps = target.rms_norm_eps;
  c.rope = target.rope;
  c.max_position_embeddings = target.max_position_embeddings;
  c.norm_before_residual = options.norm_before_residual;
  c.norm_before_fc = options.norm_before_fc;
  c.fc_norm = options.fc_norm;
  c.norm_output = options.norm_output;
  c.qk_norm = options.draft_arch == "qwen3";
  c.attention_bias = options.attention_bias;
  c.mlp_bias = options.mlp_bias;
  if (options.sliding_window > 0) c.sliding_window = windows_of_layers(options);
  c.bos_id = target.bos_id;
  c.eos_id = target.eos_id;
  c.verifier_name = target.name;
  c.verifier_architecture = transformers_class(target.architecture);
  c.target_identity = target.identity;
  c.ttt_steps = options.ttt_steps;
  return c;
}

Status check_fits(const DraftConfig& draft, const TargetFacts& target, const StoreHeader& header) {
  if (draft.target_hidden != target.hidden)
    return mismatch(fmt::format("the draft is for a target of width {}, this target is {} wide",
                                draft.target_hidden, target.hidden),
                    "use a draft of this target");
  if (draft.vocab != target.vocab)
    return mismatch(
        fmt::format("the draft is for a vocabulary of {}, this target has {}", draft.vocab, target.vocab),
        "use a draft of this target");
  if (draft.aux_layers != header.aux_layers)
    return mismatch(
        fmt::format(
            "the draft reads the captured layers [{}], the store holds [{}] (id k = input of layer k)",
            fmt::join(draft.aux_layers, ", "), fmt::join(header.aux_layers, ", ")),
        fmt::format(
            "extract again with --target-layer-ids {}; or, when the draft's list counts outputs of layers "
            "(one less than inputs), take it in with eaglet import --layer-convention output",
            fmt::join(draft.aux_layers, ",")));
  return {};
}

Result<DraftWeights> warm_start(const TrainOptions& options, const TargetFacts& target,
                                const TargetWeights& weights, const StoreHeader& header,
                                std::vector<std::string>* notes) {
  LoadReport report;
  ReadDraftOptions read;
  read.train_head = options.train_head;
  if (weights.head().size() == static_cast<std::size_t>(target.vocab * target.hidden))
    read.target_head = &weights.head();
  const std::string config_path = options.from + "/config.json";
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(config_path));
  const Result<DraftConfig> listed = draft_config_from_json(json);
  if (!listed.ok()) return listed.status().at(config_path);
  if (listed->aux_layers.empty()) {
    read.aux_layers = header.aux_layers;
    notes->push_back(
        fmt::format("warning: the draft's config lists no captured layers; the store's are taken: {}",
                    fmt::join(header.aux_layers, ", ")));
  }
  EAGLET_ASSIGN_OR_RETURN(DraftWeights draft, read_draft(options.from, read, &report));
  DraftConfig& config = draft.config;
  if (Status status = check_fits(config, target, header); !status.ok()) return status.at(options.from);
  if (Status status = check_options_against(options, config); !status.ok()) return status.at(options.from);
  describe(report, options.from, notes);
  if (config.rope != target.rope)
    notes->push_back(fmt::format(
        "  warning: the draft's rotary settings ({}, base {:g}) are not the target's ({}, base {:g}); "
        "the draft's are kept",
        config.rope.type, config.rope.theta, target.rope.type, target.rope.theta));
  drop_equal_embeddings(weights.embed_tokens, &draft);
  config.target_identity = target.identity;
  if (config.verifier_name.empty()) config.verifier_name = target.name;
  if (config.verifier_architecture.empty())
    config.verifier_architecture = transformers_class(target.architecture);
  config.ttt_steps = options.ttt_steps;
  return draft;
}

}  // namespace eaglet
