#include "formats/target_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/hash.h"
#include "formats/gguf_file.h"
#include "formats/target_architectures.h"
#include "formats/transformers_target.h"

namespace eaglet {
namespace {

constexpr int kControlToken = 3;               // tokenizer.ggml.token_type of <|im_start|> and its like
constexpr std::uint64_t kSampledBytes = 4096;  // of each tensor's beginning and end, for the identity

/// Reads "<architecture>.<key>" and remembers where it stands for messages.
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}
  std::optional<double> number(const std::string& key) const { return file_.number(prefix_ + key); }
  std::optional<std::string> string(const std::string& key) const { return file_.string(prefix_ + key); }
  /// An integer, or the largest of an array with one entry per layer.
  std::optional<std::int64_t> integer(const std::string& key) const {
    if (const auto one = file_.integer(prefix_ + key)) return one;
    const auto many = file_.integers(prefix_ + key);
    if (!many || many->empty()) return std::nullopt;
    return *std::max_element(many->begin(), many->end());
  }
  Result<std::int64_t> positive(const std::string& key) const {
    const auto value = integer(key);
    if (!value)
      return Status(StatusCode::kDataLoss, "the model has no " + prefix_ + key, file_.path(), kConvertAgain);
    if (*value <= 0 || *value > (std::int64_t{1} << 31))
      return Status(StatusCode::kDataLoss, prefix_ + key + " is " + std::to_string(*value), file_.path(),
                    kConvertAgain);
    return *value;
  }

 private:
  static constexpr const char* kConvertAgain = "convert the model again with a current llama.cpp";
  const GgufFile& file_;
  std::string prefix_;
};

Status config_error(const GgufFile& file, const std::string& what, const std::string& todo) {
  return Status(StatusCode::kConfig, what, file.path(), todo);
}

Result<std::string> read_architecture(const GgufFile& file) {
  const auto architecture = file.string("general.architecture");
  if (!architecture)
    return Status(StatusCode::kDataLoss, "the GGUF file names no architecture", file.path(),
                  "give a language model, not a file of loose tensors");
  if (*architecture == "eagle3" || *architecture == "eagle" || *architecture == "dflash")
    return config_error(file, "a draft model (architecture " + *architecture + "), not a target",
                        "give the model that the draft is for");
  if (const auto type = file.string("general.type"); type && *type != "model")
    return config_error(file, "a file of type \"" + *type + "\", not a model",
                        "give the language model itself");
  if (!is_target_architecture(*architecture))
    return config_error(
        file, "architecture \"" + *architecture + "\" cannot be a target here",
        "use one of " + usual_target_architectures() + "; all are listed in docs/formats/gguf.md");
  return *architecture;
}

/// Things between the last state and the probabilities that training would leave out.
Status check_plain_head(const GgufFile& file, const Keys& keys) {
  if (keys.number("final_logit_softcapping").value_or(0) != 0)
    return config_error(file, "the target caps its logits (final_logit_softcapping)",
                        "such a target needs another teacher; it is not supported");
  if (const double scale = keys.number("logit_scale").value_or(1); scale != 1 && scale != 0)
    return config_error(file, "the target scales its logits (logit_scale)",
                        "such a target needs another teacher; it is not supported");
  for (const char* bias : {"output.bias", "output_norm.bias"})
    if (file.find(bias) != nullptr)
      return config_error(file, std::string("the target has ") + bias,
                          "only plain RMS norms and heads are supported");
  return Status();
}

/// llama.cpp stores llama3 scaling as one divisor per pair (rope_freqs.weight). The usual settings are tried,
/// and taken only when they give the very divisors in the file.
Result<RopeConfig> llama3_from_divisors(const GgufFile& file, const Keys& keys, RopeConfig rope,
                                        std::int64_t dim) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<float> divisors, file.read_f32("rope_freqs.weight"));
  const float largest = divisors.empty() ? 1 : *std::max_element(divisors.begin(), divisors.end());
  if (largest == 1) return rope;
  rope.type = "llama3";
  rope.factor = largest;
  const double stated = keys.number("rope.scaling.original_context_length").value_or(8192);
  const RopeTable plain = rope_table(RopeConfig{.theta = rope.theta}, dim, 0);
  for (const double context : {stated, 8192.0, 4096.0, 2048.0}) {
    rope.original_max_position_embeddings = context;
    const RopeTable scaled = rope_table(rope, dim, 0);
    bool same = scaled.inv_freq.size() == divisors.size();
    for (std::size_t i = 0; same && i < divisors.size(); ++i)
      same = std::fabs(plain.inv_freq[i] / scaled.inv_freq[i] / divisors[i] - 1) < 1e-3f;
    if (same) return rope;
  }
  return config_error(file, "rope_freqs.weight fits no known rope type",
                      "default, linear, llama3 and yarn are known; another type would give other angles");
}

Status read_yarn(const Keys& keys, RopeConfig* rope) {
  rope->original_max_position_embeddings =
      keys.number("rope.scaling.original_context_length")
          .value_or(keys.number("context_length").value_or(0) / rope->factor);
  rope->beta_fast = keys.number("rope.scaling.yarn_beta_fast").value_or(32.0);
  rope->beta_slow = keys.number("rope.scaling.yarn_beta_slow").value_or(1.0);
  if (const auto log_multiplier = keys.number("rope.scaling.yarn_log_multiplier");
      log_multiplier && *log_multiplier != 0) {
    // DeepSeek and Kimi: 0.1 * mscale_all_dim; mscale itself is equal to it in every published model.
    rope->mscale = rope->mscale_all_dim = std::round(*log_multiplier * 1e6) / 1e5;
  } else if (const double factor = keys.number("rope.scaling.attn_factor").value_or(1); factor != 1) {
    rope->attention_factor = factor * (1 + 0.1 * std::log(rope->factor));
  }
  return Status();
}

Result<RopeConfig> read_rope(const GgufFile& file, const Keys& keys, std::int64_t head_dim) {
  RopeConfig rope;
  // Widened from a stored float: 100000 and 50000 are exact, 1e6 too.
  rope.theta = keys.number("rope.freq_base").value_or(10000.0);
  if (!std::isfinite(rope.theta) || rope.theta <= 0)
    return Status(StatusCode::kDataLoss, "rope.freq_base is not a positive number", file.path(),
                  "get the model again");
  const std::string type = keys.string("rope.scaling.type").value_or("none");
  rope.factor = keys.number("rope.scaling.factor").value_or(1.0);
  if (!std::isfinite(rope.factor) || rope.factor <= 0) rope.factor = 1.0;
  const std::int64_t dim = keys.integer("rope.dimension_count").value_or(head_dim);
  if (file.find("rope_freqs.weight") != nullptr) return llama3_from_divisors(file, keys, rope, dim);
  if (type == "none" || (type == "linear" && rope.factor == 1.0)) {
    rope.factor = 1.0;
    return rope;
  }
  rope.type = type;
  if (type == "linear") return rope;
  if (type != "yarn")
    return config_error(file, "unknown rope type \"" + type + "\"",
                        "default, linear, llama3 and yarn are known; another type would give other angles");
  EAGLET_RETURN_IF_ERROR(read_yarn(keys, &rope));
  return rope;
}

Status read_sizes(const GgufFile& file, const Keys& keys, TargetFacts* facts) {
  EAGLET_ASSIGN_OR_RETURN(facts->num_layers, keys.positive("block_count"));
  EAGLET_ASSIGN_OR_RETURN(facts->hidden, keys.positive("embedding_length"));
  EAGLET_ASSIGN_OR_RETURN(facts->num_heads, keys.positive("attention.head_count"));
  facts->num_kv_heads = keys.integer("attention.head_count_kv").value_or(facts->num_heads);
  facts->head_dim = keys.integer("attention.key_length").value_or(facts->hidden / facts->num_heads);
  if (const auto mla = keys.integer("attention.value_length_mla"); mla && *mla > 0) {
    facts->head_dim =
        *mla;  // latent attention is stored as one shared head; what a draft would use is the decoded one
    facts->num_kv_heads = facts->num_heads;
  }
  facts->intermediate = keys.integer("feed_forward_length").value_or(0);
  if (facts->intermediate <= 0) facts->intermediate = 3 * facts->hidden;  // experts only: speculators' rule
  facts->max_position_embeddings = keys.integer("context_length").value_or(0);
  const auto eps = keys.number("attention.layer_norm_rms_epsilon");
  if (!eps || !(*eps > 0) || *eps > 1)
    return Status(StatusCode::kDataLoss, "the model has no usable attention.layer_norm_rms_epsilon",
                  file.path(), "convert the model again with a current llama.cpp");
  // Stored as a float: print and parse so that 1e-5 is 1e-5 and not 9.99999974e-06.
  facts->rms_norm_eps = std::stod(fmt::format("{}", static_cast<float>(*eps)));
  return Status();
}

Status check_shapes(const GgufFile& file, TargetFacts* facts) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  const GgufTensor* head = file.find("output.weight");
  const GgufTensor* norm = file.find("output_norm.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[1] != facts->hidden)
    return Status(StatusCode::kDataLoss, "token_embd.weight is missing or not [vocabulary, width]",
                  file.path(), "use a complete language model");
  facts->vocab = embedding->shape[0];
  facts->tied_head = head == nullptr;
  if (head != nullptr && head->shape != embedding->shape)
    return Status(StatusCode::kDataLoss, "output.weight has another shape than token_embd.weight",
                  file.path(), "use a complete language model");
  if (norm == nullptr || norm->shape != std::vector<std::int64_t>{facts->hidden})
    return Status(StatusCode::kDataLoss, "output_norm.weight is missing or not [width]", file.path(),
                  "use a complete language model");
  return Status();
}

/// Texts that end a turn in some family of models; they count when the file has them as control tokens,
/// whether or not it also names them as eos (many files name one and use two).
bool is_end_text(const std::string& text) {
  static const std::set<std::string> kEnds = {"<|im_end|>",
                                              "<|eot_id|>",
                                              "<|eom_id|>",
                                              "<|end|>",
                                              "<|endoftext|>",
                                              "<|end_of_text|>",
                                              "<|return|>",
                                              "<|call|>",
                                              "<end_of_turn>",
                                              "<eos>",
                                              "</s>",
                                              "<EOT>",
                                              "[EOT]",
                                              "[EOS]",
                                              "<end_of_utterance>",
                                              "<｜end▁of▁sentence｜>",
                                              "[e~["};
  return kEnds.contains(text);
}

void read_tokens(const GgufFile& file, TargetFacts* facts) {
  const auto id = [&](const char* key) {
    const std::int64_t value = file.integer(std::string("tokenizer.ggml.") + key).value_or(-1);
    return static_cast<std::int32_t>(value >= 0 && value < facts->vocab ? value : -1);
  };
  facts->bos_id = id("bos_token_id");
  facts->eos_id = id("eos_token_id");
  std::set<std::int32_t> ends;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (id(key) >= 0) ends.insert(id(key));
  const auto types = file.integers("tokenizer.ggml.token_type").value_or(std::vector<std::int64_t>());
  const auto texts = file.strings("tokenizer.ggml.tokens").value_or(std::vector<std::string>());
  for (std::size_t i = 0; i < types.size() && static_cast<std::int64_t>(i) < facts->vocab; ++i) {
    if (types[i] != kControlToken) continue;
    facts->special_ids.push_back(static_cast<std::int32_t>(i));
    if (i < texts.size() && is_end_text(texts[i])) ends.insert(static_cast<std::int32_t>(i));
  }
  facts->end_ids.assign(ends.begin(), ends.end());
}

/// Names, types, shapes and the first and last bytes of every tensor: milliseconds even for a large model.
std::string identity_of(const GgufFile& file, const TargetFacts& facts) {
  std::string table = fmt::format("{}\n{}\n", facts.architecture, facts.num_layers);
  for (const GgufTensor& tensor : file.tensors()) {
    const std::uint64_t sampled = std::min(kSampledBytes, tensor.bytes);
    const std::uint64_t first = xxh64(tensor.data, sampled);
    const std::uint64_t last = xxh64(tensor.data + tensor.bytes - sampled, sampled);
    table += fmt::format("{} {} {} {:016x} {:016x}\n", tensor.name, tensor.ggml_type,
                         fmt::join(tensor.shape, "x"), first, last);
  }
  return hex64(xxh64(table));
}

std::string base_name(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

Result<TargetFacts> facts_of(const GgufFile& file) {
  TargetFacts facts;
  facts.path = file.path();
  EAGLET_ASSIGN_OR_RETURN(facts.architecture, read_architecture(file));
  facts.name = file.string("general.name").value_or(base_name(file.path()));
  const Keys keys(file, facts.architecture);
  EAGLET_RETURN_IF_ERROR(read_sizes(file, keys, &facts));
  EAGLET_RETURN_IF_ERROR(check_shapes(file, &facts));
  EAGLET_RETURN_IF_ERROR(check_plain_head(file, keys));
  EAGLET_ASSIGN_OR_RETURN(facts.rope, read_rope(file, keys, facts.head_dim));
  read_tokens(file, &facts);
  facts.identity = identity_of(file, facts);
  return facts;
}

}  // namespace

Result<TargetFacts> read_target_facts(const std::string& path) {
  if (is_transformers_target(path)) return read_transformers_facts(path);
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  return facts_of(file);
}

Result<TargetWeights> read_target_weights(const std::string& path) {
  if (is_transformers_target(path)) return read_transformers_weights(path);
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, facts_of(file));
  TargetWeights weights;
  EAGLET_ASSIGN_OR_RETURN(weights.embed_tokens, file.read_f32("token_embd.weight"));
  if (!facts.tied_head) {
    EAGLET_ASSIGN_OR_RETURN(weights.lm_head, file.read_f32("output.weight"));
  }
  EAGLET_ASSIGN_OR_RETURN(weights.final_norm, file.read_f32("output_norm.weight"));
  return weights;
}

}  // namespace eaglet
