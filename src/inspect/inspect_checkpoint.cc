#include <fmt/format.h>

#include "draft/draft_config.h"
#include "draft/draft_weights.h"
#include "inspect/inspectors.h"

namespace eaglet {
namespace {

void add_config(const DraftConfig& config, Json* facts) {
  Json& f = *facts;
  f["verifier"] = config.verifier_name;
  if (!config.target_identity.empty()) f["target_identity"] = config.target_identity;
  f["hidden"] = config.hidden;
  f["target_hidden"] = config.target_hidden;
  f["layers"] = config.num_layers;
  f["heads"] = config.num_heads;
  f["kv_heads"] = config.num_kv_heads;
  f["head_dim"] = config.head_dim;
  f["intermediate"] = config.intermediate;
  f["vocab"] = config.vocab;
  f["draft_vocab"] = config.draft_vocab;
  f["aux_layers"] = config.aux_layers;
  f["rope"] = fmt::format("{}, base {}, factor {}", config.rope.type, config.rope.theta, config.rope.factor);
  if (config.head_dim >= 2 && config.head_dim <= 4096 && config.head_dim % 2 == 0) {
    const RopeTable rope = rope_table(config.rope, config.head_dim, config.max_position_embeddings);
    Json frequencies = Json::array();
    for (std::size_t i = 0; i < rope.inv_freq.size() && i < 8; ++i) frequencies.push_back(rope.inv_freq[i]);
    f["rope_inverse_frequencies"] = std::move(frequencies);  // the first eight
    f["rope_attention_factor"] = rope.attention_scaling;
  }
  f["ttt_steps"] = config.ttt_steps;
  Json flags = Json::array();
  if (config.norm_before_residual) flags.push_back("norm_before_residual");
  if (config.norm_before_fc) flags.push_back("norm_before_fc");
  if (config.fc_norm) flags.push_back("fc_norm");
  if (config.norm_output) flags.push_back("norm_output");
  if (config.qk_norm) flags.push_back("qk_norm");
  f["norm_flags"] = std::move(flags);
}

Json reasons(const std::vector<LoadReport::Skipped>& skipped) {
  Json table = Json::array();
  for (const auto& one : skipped) table.push_back({{"name", one.name}, {"reason", one.reason}});
  return table;
}

}  // namespace

Result<Inspection> inspect_checkpoint(const InspectOptions& options, Progress& progress) {
  Inspection inspection = begin_inspection("draft", options.path);
  LoadReport report;
  EAGLET_ASSIGN_OR_RETURN(const DraftWeights draft, read_draft(options.path, true, &report));
  add_config(draft.config, &inspection.facts);
  inspection.facts["parameters"] = draft.values.size();
  inspection.facts["own_embeddings"] = !draft.embed_tokens.empty();
  // The map is reported among what was skipped, but it was read: as the draft vocabulary.
  std::erase_if(report.skipped, [](const auto& one) { return one.name == "d2t" || one.name == "t2d"; });
  if (!report.skipped.empty()) inspection.facts["not_used"] = reasons(report.skipped);
  if (!report.missing.empty()) inspection.facts["missing"] = reasons(report.missing);
  inspection.doubts = report.notes;
  InspectOptions weights = options;
  weights.path = options.path + "/model.safetensors";
  EAGLET_ASSIGN_OR_RETURN(const Inspection file, inspect_safetensors(weights, progress));
  inspection.facts["bytes"] = file.facts["bytes"];
  inspection.facts["tensors"] = file.facts["tensors"];
  for (const std::string& problem : file.problems)
    inspection.problems.push_back("model.safetensors: " + problem);
  return inspection;
}

Result<Inspection> inspect_config(const InspectOptions& options, Progress&) {
  Inspection inspection = begin_inspection("draft configuration", options.path);
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(options.path));
  const auto config = draft_config_from_json(json);
  if (!config.ok()) return config.status().at(options.path);
  add_config(*config, &inspection.facts);
  return inspection;
}

}  // namespace eaglet
