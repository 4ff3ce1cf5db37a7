#include <fmt/format.h>

#include <cstring>
#include <map>

#include "base/interrupt.h"
#include "formats/gguf_file.h"
#include "formats/target_model.h"
#include "inspect/inspectors.h"
#include "vocab/draft_vocab.h"

namespace eaglet {
namespace {

void add_target(const TargetFacts& target, Json* facts) {
  Json& f = *facts;
  f["identity"] = target.identity;
  f["layers"] = target.num_layers;
  f["hidden"] = target.hidden;
  f["heads"] = target.num_heads;
  f["kv_heads"] = target.num_kv_heads;
  f["head_dim"] = target.head_dim;
  f["intermediate"] = target.intermediate;
  f["vocab"] = target.vocab;
  f["tied_head"] = target.tied_head;
  f["rope"] = fmt::format("{}, theta {}", target.rope.type, target.rope.theta);
  f["end_ids"] = target.end_ids;
  f["special_ids"] = target.special_ids.size();
}

/// A draft's map from draft to target ids: absolute in GGUF.
void check_draft_map(const GgufFile& file, Inspection* inspection) {
  const GgufTensor* map = file.find("d2t");
  if (map == nullptr || map->shape.size() != 1 || map->bytes != static_cast<std::uint64_t>(map->shape[0]) * 8)
    return;
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(map->shape[0]));
  std::memcpy(offsets.data(), map->data, map->bytes);
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (__builtin_sub_overflow(offsets[i], static_cast<std::int64_t>(i), &offsets[i])) offsets[i] = -1;
  inspection->facts["draft_vocab"] = offsets.size();
  const auto vocab =
      vocab_from_offsets(offsets, file.integer("eagle3.vocab_size").value_or(INT32_MAX), nullptr);
  if (!vocab.ok()) inspection->problems.push_back("d2t: " + vocab.status().what());
}

Json type_counts(const GgufFile& file) {
  std::map<std::string, std::int64_t> counts;
  for (const GgufTensor& tensor : file.tensors()) ++counts[gguf_type_text(tensor.ggml_type)];
  return counts;
}

Status verify_numbers(const GgufFile& file, const InspectOptions& options, Progress& progress,
                      Inspection* inspection) {
  progress.begin("verify", file.tensors().size(), "tensors");
  std::uint64_t done = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (interrupted())
      return Status(StatusCode::kInterrupted, "stopped by a signal before every tensor was checked",
                    options.path);
    const auto values = file.read_f32(tensor.name);
    // kConfig: whole numbers (a map, for one), which are always finite.
    if (!values.ok() && values.status().code() != StatusCode::kConfig)
      inspection->problems.push_back("tensor " + tensor.name + ": " + values.status().what());
    progress.update(++done);
  }
  progress.end(fmt::format("{} tensors checked", done));
  return {};
}

}  // namespace

Result<Inspection> inspect_gguf(const InspectOptions& options, Progress& progress) {
  Inspection inspection = begin_inspection("GGUF", options.path);
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(options.path));
  Json& facts = inspection.facts;
  facts["bytes"] = file.bytes();
  facts["architecture"] = file.string("general.architecture").value_or("");
  facts["name"] = file.string("general.name").value_or("");
  if (const auto target = read_target_facts(options.path); target.ok()) {
    facts["usable_as_target"] = true;
    add_target(*target, &facts);
  } else {
    facts["usable_as_target"] = false;
    facts["why_not"] = target.status().what();
  }
  if (const auto layers = file.integers("eagle3.target_layers")) facts["aux_layers"] = *layers;
  check_draft_map(file, &inspection);
  facts["tensor_types"] = type_counts(file);
  Json keys = Json::array(), tensors = Json::array();
  for (const auto& [key, text] : file.described_keys()) keys.push_back({{"key", key}, {"value", text}});
  for (const GgufTensor& tensor : file.tensors())
    tensors.push_back({{"name", tensor.name},
                       {"dtype", gguf_type_text(tensor.ggml_type)},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes}});
  facts["keys"] = std::move(keys);
  facts["tensors"] = std::move(tensors);
  if (options.verify) EAGLET_RETURN_IF_ERROR(verify_numbers(file, options, progress, &inspection));
  return inspection;
}

}  // namespace eaglet
