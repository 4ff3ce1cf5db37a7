#include "formats/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace eaglet {
namespace {

constexpr double kDefaultTheta = 10000.0;  // what transformers uses when a config says nothing

Status config_error(const std::string& what, const std::string& todo) {
  return Status(StatusCode::kConfig, what, "rope settings", todo);
}

/// A number under `key`, nothing when the key is missing or null.
Result<std::optional<double>> optional_number(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return std::optional<double>();
  if (!at->is_number() || !std::isfinite(at->get<double>()))
    return config_error(std::string(key) + " is not a finite number", "give a number");
  return std::optional<double>(at->get<double>());
}

/// Reads `key` into `to` when it is there; it must be above zero.
Status read_positive(const Json& object, const char* key, double* to) {
  EAGLET_ASSIGN_OR_RETURN(const std::optional<double> number, optional_number(object, key));
  if (!number) return Status();
  if (*number <= 0) return config_error(std::string(key) + " is not above zero", "give a positive number");
  *to = *number;
  return Status();
}

/// "rope_type", or "type" as older files have it; "default" when neither is there.
Result<std::string> type_of(const Json& object) {
  std::string type;
  for (const char* key : {"rope_type", "type"}) {
    const auto at = object.find(key);
    if (at == object.end() || at->is_null()) continue;
    if (!at->is_string()) return config_error(std::string(key) + " is not a string", "give the type's name");
    const auto name = at->get<std::string>();
    if (!type.empty() && type != name)
      return config_error("rope_type \"" + type + "\" contradicts type \"" + name + "\"", "keep one of them");
    type = name;
  }
  if (type.empty()) type = "default";
  if (type != "default" && type != "linear" && type != "llama3" && type != "yarn")
    return config_error("unknown rope type \"" + type + "\"",
                        "default, linear, llama3 and yarn are known; another type would give other angles");
  return type;
}

Status read_partial(const Json& object) {
  EAGLET_ASSIGN_OR_RETURN(const std::optional<double> share,
                          optional_number(object, "partial_rotary_factor"));
  if (share && *share != 1.0)
    return config_error("partial_rotary_factor other than 1 is not supported",
                        "use a model that rotates whole heads");
  return Status();
}

/// Is everything there that the type needs?
Status check_complete(const RopeConfig& rope) {
  if (rope.type == "llama3" && rope.original_max_position_embeddings <= 0)
    return config_error("llama3 needs original_max_position_embeddings", "copy it from the target's config");
  if (rope.type == "llama3" && rope.high_freq_factor <= rope.low_freq_factor)
    return config_error("high_freq_factor is not above low_freq_factor",
                        "copy both from the target's config");
  if (rope.type == "yarn" && rope.original_max_position_embeddings <= 0)
    return config_error("yarn needs original_max_position_embeddings or max_position_embeddings",
                        "copy it from the target's config");
  return Status();
}

/// One settings object (the value of rope_parameters or rope_scaling). `config` is the object around it.
Result<RopeConfig> parse_settings(const Json& settings, const Json& config) {
  if (!settings.is_object()) return config_error("not an object", "write {\"rope_type\": ..., ...}");
  for (const auto& [key, value] : settings.items())
    if (value.is_object())
      return config_error("settings per kind of layer (\"" + key + "\") are not supported",
                          "give one set of rope settings");
  RopeConfig rope;
  EAGLET_ASSIGN_OR_RETURN(rope.type, type_of(settings));
  EAGLET_RETURN_IF_ERROR(read_positive(settings, "rope_theta", &rope.theta));
  EAGLET_RETURN_IF_ERROR(read_partial(settings));
  if (rope.type == "default") return rope;
  if (!settings.contains("factor") || settings["factor"].is_null())
    return config_error("rope type \"" + rope.type + "\" without factor",
                        "copy factor from the target's config");
  EAGLET_RETURN_IF_ERROR(read_positive(settings, "factor", &rope.factor));
  if (rope.type == "linear") return rope;
  EAGLET_RETURN_IF_ERROR(
      read_positive(config, "original_max_position_embeddings", &rope.original_max_position_embeddings));
  EAGLET_RETURN_IF_ERROR(
      read_positive(settings, "original_max_position_embeddings", &rope.original_max_position_embeddings));
  if (rope.type == "llama3") {
    EAGLET_RETURN_IF_ERROR(read_positive(settings, "low_freq_factor", &rope.low_freq_factor));
    EAGLET_RETURN_IF_ERROR(read_positive(settings, "high_freq_factor", &rope.high_freq_factor));
  } else {
    if (rope.original_max_position_embeddings == 0)
      EAGLET_RETURN_IF_ERROR(
          read_positive(config, "max_position_embeddings", &rope.original_max_position_embeddings));
    EAGLET_RETURN_IF_ERROR(read_positive(settings, "beta_fast", &rope.beta_fast));
    EAGLET_RETURN_IF_ERROR(read_positive(settings, "beta_slow", &rope.beta_slow));
    EAGLET_RETURN_IF_ERROR(read_positive(settings, "attention_factor", &rope.attention_factor));
    // Zero is a legal mscale: it means "not given" to every reader, as here.
    EAGLET_ASSIGN_OR_RETURN(const std::optional<double> mscale, optional_number(settings, "mscale"));
    EAGLET_ASSIGN_OR_RETURN(const std::optional<double> all_dim, optional_number(settings, "mscale_all_dim"));
    rope.mscale = mscale.value_or(0);
    rope.mscale_all_dim = all_dim.value_or(0);
    if (settings.contains("truncate")) {
      if (!settings["truncate"].is_boolean())
        return config_error("truncate is not true or false", "write a boolean");
      rope.truncate = settings["truncate"].get<bool>();
    }
  }
  EAGLET_RETURN_IF_ERROR(check_complete(rope));
  return rope;
}

/// 0.1 m ln(s) + 1: yarn's attention temperature (arXiv:2309.00071, with DeepSeek's m).
double yarn_mscale(double scale, double m) {
  return scale <= 1 ? 1.0 : 0.1 * m * std::log(scale) + 1.0;
}

double yarn_attention_scaling(const RopeConfig& rope) {
  if (rope.attention_factor > 0) return rope.attention_factor;
  if (rope.mscale != 0 && rope.mscale_all_dim != 0)
    return yarn_mscale(rope.factor, rope.mscale) / yarn_mscale(rope.factor, rope.mscale_all_dim);
  return yarn_mscale(rope.factor, 1.0);
}

/// The pair of a head whose angle makes `rotations` turns over the original context (a fraction).
double yarn_pair_of(double rotations, double head_dim, double theta, double context) {
  return head_dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

/// Fast pairs stay, slow pairs are divided by the factor, a linear ramp lies between.
void yarn_scale(const RopeConfig& rope, double context, std::int64_t head_dim,
                std::vector<double>* inv_freq) {
  const auto dim = static_cast<double>(head_dim);
  double low = yarn_pair_of(rope.beta_fast, dim, rope.theta, context);
  double high = yarn_pair_of(rope.beta_slow, dim, rope.theta, context);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // as every implementation does against a division by zero
  for (std::size_t i = 0; i < inv_freq->size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    (*inv_freq)[i] *= ramp / rope.factor + (1 - ramp);
  }
}

/// Long waves are divided by the factor, short ones stay, between them a blend.
void llama3_scale(const RopeConfig& rope, double context, std::vector<double>* inv_freq) {
  for (double& frequency : *inv_freq) {
    const double waves = context * frequency / (2 * std::numbers::pi);  // turns over the original context
    if (waves > rope.high_freq_factor) continue;
    const double keep =
        std::max(0.0, (waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor));
    frequency *= keep + (1 - keep) / rope.factor;
  }
}

}  // namespace

RopeTable rope_table(const RopeConfig& rope, std::int64_t head_dim, std::int64_t max_position_embeddings) {
  std::vector<double> inv_freq(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < inv_freq.size(); ++i)
    inv_freq[i] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  const double context = rope.original_max_position_embeddings > 0
                             ? rope.original_max_position_embeddings
                             : static_cast<double>(max_position_embeddings);
  RopeTable table;
  if (rope.type == "linear") {
    for (double& frequency : inv_freq) frequency /= rope.factor;
  } else if (rope.type == "llama3") {
    llama3_scale(rope, context, &inv_freq);
  } else if (rope.type == "yarn") {
    yarn_scale(rope, context, head_dim, &inv_freq);
    table.attention_scaling = static_cast<float>(yarn_attention_scaling(rope));
  }
  table.inv_freq.assign(inv_freq.begin(), inv_freq.end());
  return table;
}

Result<RopeConfig> rope_from_json(const Json& config) {
  if (!config.is_object()) return config_error("the config is not an object", "give a config.json");
  std::optional<RopeConfig> rope;
  std::string rope_key;
  bool theta_inside = false;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto at = config.find(key);
    if (at == config.end() || at->is_null()) continue;
    auto parsed = parse_settings(*at, config);
    if (!parsed.ok()) return parsed.status().at(key);
    const bool has_theta = at->contains("rope_theta") && !(*at)["rope_theta"].is_null();
    if (rope) {  // one of the two may leave the base to the other
      if (theta_inside && !has_theta) parsed->theta = rope->theta;
      if (has_theta && !theta_inside) rope->theta = parsed->theta;
      if (!(*rope == *parsed))
        return config_error("rope_parameters and rope_scaling contradict each other", "keep one of them");
    }
    rope = *parsed;
    rope_key = key;
    theta_inside = theta_inside || has_theta;
  }
  if (!rope) rope = RopeConfig{};
  EAGLET_RETURN_IF_ERROR(read_partial(config));
  double theta = kDefaultTheta;
  EAGLET_RETURN_IF_ERROR(read_positive(config, "rope_theta", &theta));
  const bool theta_beside = config.contains("rope_theta") && !config["rope_theta"].is_null();
  if (theta_beside && theta_inside && theta != rope->theta)
    return config_error("rope_theta is " + Json(theta).dump() + " at the top and " +
                            Json(rope->theta).dump() + " inside " + rope_key,
                        "keep the base the model was trained with");
  if (theta_beside) rope->theta = theta;
  return *rope;
}

Json rope_to_json(const RopeConfig& rope) {
  Json json = {{"rope_type", rope.type}, {"rope_theta", rope.theta}};
  if (rope.type == "default") return json;
  json["factor"] = rope.factor;
  if (rope.type == "linear") return json;
  if (rope.original_max_position_embeddings == std::floor(rope.original_max_position_embeddings))
    json["original_max_position_embeddings"] =
        static_cast<std::int64_t>(rope.original_max_position_embeddings);
  else
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.type == "llama3") {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    return json;
  }
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  if (rope.mscale != 0) json["mscale"] = rope.mscale;
  if (rope.mscale_all_dim != 0) json["mscale_all_dim"] = rope.mscale_all_dim;
  if (rope.attention_factor != 0) json["attention_factor"] = rope.attention_factor;
  if (!rope.truncate) json["truncate"] = false;
  return json;
}

}  // namespace eaglet
