#include "monitor/draft_cost.h"

#include "monitor/text_scan.h"

namespace eaglet::monitor {

std::optional<DraftShape> draft_shape(const RunConfig& config) {
  const auto get = [&](const char* key) { return config.number(key).value_or(0); };
  DraftShape shape;
  shape.hidden = get("hidden_size");
  const double heads = get("num_heads"), kv_heads = get("num_kv_heads");
  const double head_dim = get("head_dim") > 0 ? get("head_dim") : heads > 0 ? shape.hidden / heads : 0;
  shape.query_width = heads * head_dim;
  shape.kv_width = (kv_heads > 0 ? kv_heads : heads) * head_dim;
  shape.intermediate = get("intermediate_size");
  shape.draft_vocab = get("draft_vocab_size");
  shape.target_vocab = get("target_vocab_size");
  shape.teacher_vocab = shape.draft_vocab;
  if (get("num_aux") > 0) shape.aux_layers = get("num_aux");
  shape.ttt_steps = get("ttt_steps");
  const double samples = get("train_samples"), tokens = get("real_tokens");
  shape.document_length = samples > 0 ? tokens / samples : 0;
  const auto head = config.text("train_head");
  shape.head_trained = !head || (*head != "false" && *head != "0");
  if (shape.hidden <= 0 || shape.query_width <= 0 || shape.intermediate <= 0 || shape.draft_vocab <= 0)
    return std::nullopt;
  return shape;
}

double trainable_parameters(const DraftShape& s) {
  const double attention = 2 * s.hidden * (s.query_width + 2 * s.kv_width) + s.query_width * s.hidden;
  const double fixed = s.aux_layers * s.hidden * s.hidden + attention + 3 * s.hidden * s.intermediate;
  return fixed + (s.head_trained ? s.hidden * s.draft_vocab : 0);
}

double total_parameters(const DraftShape& s) {
  const double head = s.head_trained ? 0 : s.hidden * s.draft_vocab;
  return trainable_parameters(s) + head + s.hidden * s.target_vocab + s.hidden * s.teacher_vocab;
}

double training_flop_per_token(const DraftShape& s) {
  const double fc = 2 * s.aux_layers * s.hidden * s.hidden;
  const double layer = 2 * (2 * s.hidden * s.query_width + 4 * s.hidden * s.kv_width +
                            s.query_width * s.hidden + 3 * s.hidden * s.intermediate);
  const double head = 2 * s.hidden * s.draft_vocab, teacher = 2 * s.hidden * s.teacher_vocab;
  double flop = 2 * fc + teacher;  // fc needs no gradient of its input
  for (int j = 0; j < static_cast<int>(s.ttt_steps); ++j) {
    const double attention = 2 * s.query_width * s.document_length + 4 * s.query_width * j;
    flop += 3 * (layer + attention) + (s.head_trained ? 3 : 2) * head;
  }
  return flop;
}

double device_peak_flops(const std::string& name) {
  struct Peak {
    const char* part;
    double tflops;
  };
  // SMs x FLOP per clock and SM x boost clock, dense bf16 with fp32 sums.
  constexpr Peak kPeaks[] = {{"H200", 989}, {"H100 PCIe", 756},    {"H100", 989},
                             {"A100", 312}, {"RTX PRO 6000", 500}, {"RTX 6000 Ada", 364},
                             {"L40S", 362}, {"RTX 5090", 210},     {"RTX 4090", 165}};
  for (const Peak& peak : kPeaks)
    if (contains(name, peak.part)) return peak.tflops * 1e12;
  return 0;
}

double checkpoint_bytes(const DraftShape& s) {
  return 2 * total_parameters(s) + 8 * trainable_parameters(s);
}

double fixed_training_bytes(const DraftShape& s) {
  const double trained = trainable_parameters(s);
  return 2 * (total_parameters(s) - trained) + trained * (2 + 2 + 8);
}

}  // namespace eaglet::monitor
