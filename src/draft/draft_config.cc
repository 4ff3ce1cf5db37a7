#include "draft/draft_config.h"

#include <fmt/format.h>

#include <cmath>

namespace eaglet {
namespace {

// Large enough for any model of today, small enough that no product of three of them overflows 64 bits.
constexpr std::int64_t kMaxDimension = std::int64_t{1} << 20;

Status bad_config(std::string what) {
  return Status(StatusCode::kConfig, std::move(what), "draft config");
}

Status check_dimensions(const DraftConfig& c) {
  const struct {
    const char* name;
    std::int64_t value;
  } dimensions[] = {{"hidden_size", c.hidden},
                    {"target_hidden_size", c.target_hidden},
                    {"num_attention_heads", c.num_heads},
                    {"num_key_value_heads", c.num_kv_heads},
                    {"head_dim", c.head_dim},
                    {"intermediate_size", c.intermediate},
                    {"num_hidden_layers", c.num_layers},
                    {"vocab_size", c.vocab},
                    {"draft_vocab_size", c.draft_vocab}};
  for (const auto& d : dimensions) {
    if (d.value < 1 || d.value > kMaxDimension) {
      return bad_config(fmt::format("{} is {}; it must be 1 to {}", d.name, d.value, kMaxDimension));
    }
  }
  if (c.num_heads % c.num_kv_heads != 0) {
    return bad_config(fmt::format("{} attention heads cannot share {} key-value heads evenly", c.num_heads,
                                  c.num_kv_heads));
  }
  if (c.head_dim % 2 != 0) {
    return bad_config(fmt::format("head_dim {} is odd; rotary embedding needs pairs", c.head_dim));
  }
  if (c.draft_vocab > c.vocab) {
    return bad_config(fmt::format("draft_vocab_size {} is larger than the target's vocabulary of {}",
                                  c.draft_vocab, c.vocab));
  }
  return {};
}

Status check_aux_layers(const DraftConfig& c) {
  if (c.aux_layers.empty()) return bad_config("no captured layers (eagle_aux_hidden_state_layer_ids)");
  if (c.num_aux() > 256)
    return bad_config(fmt::format("{} captured layers; at most 256 are possible", c.num_aux()));
  for (std::size_t i = 0; i < c.aux_layers.size(); ++i) {
    if (c.aux_layers[i] < 0) return bad_config(fmt::format("captured layer {} is negative", c.aux_layers[i]));
    if (i > 0 && c.aux_layers[i] <= c.aux_layers[i - 1]) {
      return bad_config(
          fmt::format("captured layers must rise: {} comes after {}", c.aux_layers[i], c.aux_layers[i - 1]));
    }
  }
  return {};
}

Status check_settings(const DraftConfig& c) {
  if (!(c.rms_norm_eps > 0) || !std::isfinite(c.rms_norm_eps)) {
    return bad_config(fmt::format("rms_norm_eps is {}; it must be above 0", c.rms_norm_eps));
  }
  if (!(c.rope.theta > 0) || !std::isfinite(c.rope.theta)) {
    return bad_config(fmt::format("rope_theta is {}; it must be above 0", c.rope.theta));
  }
  if (c.max_position_embeddings < 0) {
    return bad_config(fmt::format("max_position_embeddings is {}", c.max_position_embeddings));
  }
  if (c.norm_before_fc && c.fc_norm) return bad_config("norm_before_fc and fc_norm exclude each other");
  if (c.hidden_act != "silu") {
    return bad_config(fmt::format("hidden_act \"{}\" is not known; only \"silu\" is", c.hidden_act));
  }
  if (c.ttt_steps < 1) return bad_config(fmt::format("ttt_steps is {}; it must be at least 1", c.ttt_steps));
  if (!c.sliding_window.empty() && static_cast<std::int64_t>(c.sliding_window.size()) != c.num_layers) {
    return bad_config(fmt::format("{} window settings for {} layers", c.sliding_window.size(), c.num_layers));
  }
  std::int64_t common_window = 0;  // a config.json has room for one width
  for (const std::int64_t window : c.sliding_window) {
    if (window < 0) return bad_config(fmt::format("sliding_window is {}", window));
    if (window > 0 && common_window > 0 && window != common_window) {
      return bad_config(fmt::format("windows of {} and {} in one draft; all sliding layers share one",
                                    common_window, window));
    }
    if (window > 0) common_window = window;
  }
  return {};
}

}  // namespace

Status check_draft_config(const DraftConfig& config) {
  EAGLET_RETURN_IF_ERROR(check_dimensions(config));
  EAGLET_RETURN_IF_ERROR(check_aux_layers(config));
  return check_settings(config);
}

}  // namespace eaglet
