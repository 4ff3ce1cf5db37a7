#include "vocab/vocab_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/files.h"
#include "base/hash.h"
#include "formats/json.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

namespace eaglet {
namespace {

constexpr const char* kKind = "eaglet vocabulary map";

Status corrupt_foreign_map(const std::string& path, const std::string& what) {
  return Status(StatusCode::kDataLoss, what, path, "have the tool that made the map write it again");
}

Result<VocabMap> from_offsets(const std::vector<std::int64_t>& d2t, const std::vector<std::int64_t>* t2d,
                              std::int64_t target_vocab, const char* layout) {
  VocabMap map;
  map.layout = layout;
  EAGLET_ASSIGN_OR_RETURN(map.vocab, vocab_from_offsets(d2t, target_vocab, &map.ascending));
  if (t2d != nullptr) EAGLET_RETURN_IF_ERROR(check_t2d(map.vocab, *t2d));
  return map;
}

std::vector<std::int64_t> to_offsets(std::vector<std::int64_t> ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] -= static_cast<std::int64_t>(i);
  return ids;
}

Result<VocabMap> read_ours(const std::string& path, std::int64_t target_vocab) {
  EAGLET_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  EAGLET_ASSIGN_OR_RETURN(const auto d2t, file.read_i64("d2t"));
  EAGLET_ASSIGN_OR_RETURN(const auto t2d, file.read_i64("t2d"));
  EAGLET_ASSIGN_OR_RETURN(VocabMap map, from_offsets(d2t, &t2d, target_vocab, "safetensors"));
  const auto text = [&](const char* key) {
    const auto it = file.metadata().find(key);
    return it == file.metadata().end() ? std::string() : it->second;
  };
  if (text("kind") == kKind) map.layout = "eaglet";
  map.tokenizer_hash = text("tokenizer_hash");
  map.counts_hash = text("counts_hash");
  return map;
}

Result<VocabMap> read_speculators(const std::string& folder, std::int64_t target_vocab) {
  EAGLET_ASSIGN_OR_RETURN(const auto d2t, read_npy_integers(folder + "/d2t.npy"));
  if (!path_exists(folder + "/t2d.npy")) return from_offsets(d2t, nullptr, target_vocab, "speculators");
  EAGLET_ASSIGN_OR_RETURN(const auto t2d, read_npy_integers(folder + "/t2d.npy"));
  return from_offsets(d2t, &t2d, target_vocab, "speculators");
}

Result<std::vector<std::int64_t>> integers(const TorchValue& value) {
  if (value.kind == TorchValue::Kind::kTensor) return TorchFile::read_i64(value.tensor);
  std::vector<std::int64_t> list;
  if (value.kind != TorchValue::Kind::kList)
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} where a list of ids should be", kind_name(value.kind)));
  for (const TorchValue* item : value.items) {
    if (item->kind != TorchValue::Kind::kInteger)
      return Status(StatusCode::kDataLoss, fmt::format("{} in a list of ids", kind_name(item->kind)));
    list.push_back(item->integer);
  }
  return list;
}

/// Offsets (Model-Optimizer's d2t.pt) or target ids (SGLang, NeMo)? Only one of the two readings may be
/// possible.
Result<VocabMap> from_bare_list(const std::vector<std::int64_t>& list, std::int64_t target_vocab,
                                BareList bare) {
  auto offsets = from_offsets(list, nullptr, target_vocab, "bare offsets");
  auto ids = from_offsets(to_offsets(list), nullptr, target_vocab, "target ids");
  if (bare != BareList::kUnknown) return bare == BareList::kIds ? ids : offsets;
  if (offsets.ok() && ids.ok() && offsets->vocab.target_ids != ids->vocab.target_ids)
    return Status(StatusCode::kConfig, "a bare list of numbers that could be offsets or target ids", "",
                  "say which with --map-holds ids or offsets");
  if (ids.ok()) return ids;
  return offsets;
}

Result<VocabMap> read_torch(const std::string& path, std::int64_t target_vocab, BareList bare) {
  EAGLET_ASSIGN_OR_RETURN(const TorchFile file, TorchFile::open(path));
  const TorchValue& root = file.root();
  if (const TorchValue* selected = root.find("selected_token_ids")) {
    EAGLET_ASSIGN_OR_RETURN(const auto ids, integers(*selected));
    return from_offsets(to_offsets(ids), nullptr, target_vocab, "nemo");
  }
  if (const TorchValue* d2t = root.find("d2t")) {
    EAGLET_ASSIGN_OR_RETURN(const auto offsets, integers(*d2t));
    const TorchValue* flags = root.find("t2d");
    if (flags == nullptr) return from_offsets(offsets, nullptr, target_vocab, "specforge");
    EAGLET_ASSIGN_OR_RETURN(const auto t2d, integers(*flags));
    return from_offsets(offsets, &t2d, target_vocab, "specforge");
  }
  EAGLET_ASSIGN_OR_RETURN(const auto list, integers(root));
  return from_bare_list(list, target_vocab, bare);
}

Result<std::map<std::int64_t, std::int64_t>> counts_of_torch(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const TorchFile file, TorchFile::open(path));
  std::map<std::int64_t, std::int64_t> counts;
  const TorchValue& root = file.root();
  if (root.kind != TorchValue::Kind::kDict) return corrupt_foreign_map(path, "no dict of counts");
  for (std::size_t i = 0; i < root.items.size(); ++i) {
    if (root.items[i]->kind != TorchValue::Kind::kInteger ||
        root.values[i]->kind != TorchValue::Kind::kInteger)
      return corrupt_foreign_map(path, "the counts are not whole numbers by token id");
    counts[root.items[i]->integer] = root.values[i]->integer;
  }
  return counts;
}

Result<std::map<std::int64_t, std::int64_t>> counts_of_json(const std::string& path,
                                                            std::int64_t* target_vocab) {
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  if (!json.is_object() || !json.contains("counts") || !json["counts"].is_object())
    return corrupt_foreign_map(path, "there is no object \"counts\"");
  if (json.contains("target_vocab_size") && json["target_vocab_size"].is_number_unsigned() &&
      *target_vocab == 0)
    *target_vocab = json["target_vocab_size"].get<std::int64_t>();
  std::map<std::int64_t, std::int64_t> counts;
  for (const auto& [id, count] : json["counts"].items()) {
    if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos ||
        !count.is_number_unsigned())
      return corrupt_foreign_map(path, "\"counts\" holds something that is no count of a token id");
    counts[std::stoll(id)] = count.get<std::int64_t>();
  }
  return counts;
}

}  // namespace

Result<VocabMap> read_vocab_map(const std::string& path, std::int64_t target_vocab, BareList bare) {
  auto map = is_directory(path)               ? read_speculators(path, target_vocab)
             : path.ends_with(".safetensors") ? read_ours(path, target_vocab)
                                              : read_torch(path, target_vocab, bare);
  if (!map.ok()) {
    const Status& status = map.status();
    return status.where().find(path) == std::string::npos ? status.at(path) : status;
  }
  return map;
}

Status write_vocab_map(const VocabMap& map, VocabLayout layout, const std::vector<std::int64_t>& counts,
                       const std::string& path) {
  const std::vector<std::int64_t> d2t = map.vocab.d2t_offsets();
  const std::vector<std::uint8_t> t2d = map.vocab.t2d_flags();
  switch (layout) {
    case VocabLayout::kEaglet:
      return write_safetensors(
          path,
          {{"d2t", Dtype::kI64, {map.vocab.size()}, d2t.data()},
           {"t2d", Dtype::kBool, {map.vocab.target_vocab}, t2d.data()}},
          {{"kind", kKind}, {"tokenizer_hash", map.tokenizer_hash}, {"counts_hash", map.counts_hash}});
    case VocabLayout::kSpeculators: {
      EAGLET_RETURN_IF_ERROR(make_directories(path));
      EAGLET_RETURN_IF_ERROR(write_npy_int64(path + "/d2t.npy", d2t));
      EAGLET_RETURN_IF_ERROR(write_npy_bool(path + "/t2d.npy", t2d));
      if (counts.empty()) return {};
      std::map<std::int64_t, std::int64_t> seen;
      for (std::size_t id = 0; id < counts.size(); ++id)
        if (counts[id] > 0) seen[static_cast<std::int64_t>(id)] = counts[id];
      return write_torch_counts(path + "/token_freq.pt", seen);
    }
    case VocabLayout::kSpecForge:
      return write_torch_tensors(path,
                                 {{"d2t",
                                   Dtype::kI64,
                                   {map.vocab.size()},
                                   std::string(reinterpret_cast<const char*>(d2t.data()), d2t.size() * 8)},
                                  {"t2d",
                                   Dtype::kBool,
                                   {map.vocab.target_vocab},
                                   std::string(reinterpret_cast<const char*>(t2d.data()), t2d.size())}});
    case VocabLayout::kSglang:
      break;
  }
  return write_torch_list(path, {map.vocab.target_ids.begin(), map.vocab.target_ids.end()});
}

std::string hash_counts(const std::vector<std::int64_t>& counts) {
  return hex64(xxh64(counts.data(), counts.size() * sizeof(std::int64_t)));
}

std::string stale_reason(const VocabMap& map, std::int64_t target_vocab, std::int64_t draft_vocab,
                         const std::string& tokenizer_hash, const std::string& counts_hash) {
  if (map.vocab.target_vocab != target_vocab)
    return fmt::format("it is for a target vocabulary of {}, not {}", map.vocab.target_vocab, target_vocab);
  if (draft_vocab > 0 && map.vocab.size() != draft_vocab)
    return fmt::format("it has {} entries, a draft vocabulary of {} is asked for", map.vocab.size(),
                       draft_vocab);
  if (!map.tokenizer_hash.empty() && !tokenizer_hash.empty() && map.tokenizer_hash != tokenizer_hash)
    return fmt::format("it was made for another tokenizer ({}, not {})", map.tokenizer_hash, tokenizer_hash);
  if (!map.counts_hash.empty() && !counts_hash.empty() && map.counts_hash != counts_hash)
    return "it was made from other data (its counts differ)";
  return {};
}

Result<std::vector<std::int64_t>> read_token_counts(const std::string& path, std::int64_t target_vocab) {
  const bool torch = path.ends_with(".pt");
  auto read = torch ? counts_of_torch(path) : counts_of_json(path, &target_vocab);
  if (!read.ok()) return read.status();
  if (target_vocab < 1 || target_vocab > (std::int64_t{1} << 24))
    return Status(StatusCode::kUsage, "the size of the target's vocabulary is not known", path,
                  "give --target-vocab-size, or --model");
  std::vector<std::int64_t> counts(static_cast<std::size_t>(target_vocab), 0);
  for (const auto& [id, count] : *read) {
    if (id < 0 || id >= target_vocab || count < 0)
      return corrupt_foreign_map(
          path, fmt::format("a count of {} for the id {} in a vocabulary of {}", count, id, target_vocab));
    counts[static_cast<std::size_t>(id)] = count;
  }
  return counts;
}

}  // namespace eaglet
