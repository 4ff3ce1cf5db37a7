#include "inspect/map_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "inspect/inspectors.h"
#include "vocab/vocab_files.h"

namespace eaglet {
namespace {

/// The target's vocabulary as the map's own t2d tells; 0 when it has none.
std::int64_t told_target_vocab(const std::string& path) {
  if (is_directory(path)) {
    const auto t2d = read_npy_integers(path + "/t2d.npy");
    return t2d.ok() ? static_cast<std::int64_t>(t2d->size()) : 0;
  }
  if (path.ends_with(".safetensors")) {
    const auto file = SafetensorsFile::open(path);
    const SafetensorsEntry* t2d = file.ok() ? file->find("t2d") : nullptr;
    return t2d == nullptr ? 0 : t2d->elements();
  }
  const auto file = TorchFile::open(path);
  const TorchValue* t2d = file.ok() ? file->root().find("t2d") : nullptr;
  return t2d == nullptr || t2d->kind != TorchValue::Kind::kTensor ? 0 : t2d->tensor.elements();
}

}  // namespace

void add_map_facts(const InspectOptions& options, Inspection* inspection) {
  constexpr std::int64_t kLargestVocab = 1 << 24;
  const std::int64_t told = told_target_vocab(options.path);
  const std::int64_t target_vocab = options.vocab_size > 0 ? options.vocab_size : told;
  const auto map = read_vocab_map(options.path, target_vocab > 0 ? target_vocab : kLargestVocab);
  if (!map.ok()) {
    if (map.status().code() == StatusCode::kConfig)
      inspection->doubts.push_back(map.status().what());
    else
      inspection->problems.push_back(map.status().what());
    return;
  }
  const auto& ids = map->vocab.target_ids;
  inspection->facts["layout"] = map->layout;
  inspection->facts["draft_vocab"] = map->vocab.size();
  if (target_vocab > 0) inspection->facts["target_vocab"] = target_vocab;
  if (!ids.empty()) {
    inspection->facts["smallest_id"] = *std::min_element(ids.begin(), ids.end());
    inspection->facts["largest_id"] = *std::max_element(ids.begin(), ids.end());
  }
  inspection->facts["ascending"] = map->ascending;
  if (!map->tokenizer_hash.empty()) inspection->facts["tokenizer_hash"] = map->tokenizer_hash;
  if (!map->counts_hash.empty()) inspection->facts["counts_hash"] = map->counts_hash;
}

Result<Inspection> inspect_vocab_map(const InspectOptions& options, Progress&) {
  Inspection inspection = begin_inspection("vocabulary map", options.path);
  add_map_facts(options, &inspection);
  return inspection;
}

Result<Inspection> inspect_npy(const InspectOptions& options, Progress&) {
  Inspection inspection = begin_inspection("numpy file", options.path);
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(options.path));
  EAGLET_ASSIGN_OR_RETURN(const auto numbers, read_npy_integers(options.path));
  inspection.facts["bytes"] = bytes;
  inspection.facts["numbers"] = numbers.size();
  if (numbers.empty()) return inspection;
  inspection.facts["smallest"] = *std::min_element(numbers.begin(), numbers.end());
  inspection.facts["largest"] = *std::max_element(numbers.begin(), numbers.end());
  inspection.facts["not_zero"] =
      std::count_if(numbers.begin(), numbers.end(), [](std::int64_t n) { return n != 0; });
  return inspection;
}

}  // namespace eaglet
