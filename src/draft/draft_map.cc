#include "draft/draft_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace eaglet {
namespace {

Status bad_map(std::string what) {
  return Status(StatusCode::kDataLoss, std::move(what), "d2t",
                "the map must hold offsets: target id = draft id + d2t[draft id]; take the checkpoint from "
                "its source again");
}

DraftVocab full_vocab(std::int64_t vocab) {
  DraftVocab result;
  result.target_vocab = vocab;
  result.target_ids.resize(static_cast<std::size_t>(vocab));
  std::iota(result.target_ids.begin(), result.target_ids.end(), 0);
  return result;
}

// Does `ids` name exactly the tokens that are flagged?
bool agrees(const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& flags) {
  std::vector<std::uint8_t> seen(flags.size(), 0);
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= static_cast<std::int64_t>(flags.size()) || flags[id] == 0 || seen[id] != 0)
      return false;
    seen[id] = 1;
  }
  return static_cast<std::int64_t>(ids.size()) ==
         std::count_if(flags.begin(), flags.end(), [](auto f) { return f != 0; });
}

std::vector<std::int64_t> target_ids(const std::vector<std::int64_t>& d2t) {
  std::vector<std::int64_t> ids(d2t);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] += static_cast<std::int64_t>(i);
  return ids;
}

Status check_against_flags(const std::vector<std::int64_t>& d2t, const std::vector<std::int64_t>& flags) {
  if (agrees(target_ids(d2t), flags)) return {};
  if (agrees(d2t, flags)) return bad_map("the map holds absolute target ids, not offsets (t2d shows it)");
  if (std::all_of(d2t.begin(), d2t.end(), [](auto offset) { return offset == 0; })) {
    return bad_map("the map is all zeros (never filled in), but t2d names other tokens");
  }
  return bad_map("d2t and t2d name different tokens");
}

Result<std::vector<std::int64_t>> read_sized(const TensorSource& source, const char* name, std::int64_t size,
                                             const char* size_name) {
  EAGLET_ASSIGN_OR_RETURN(auto values, source.find(name)->read_i64());
  if (static_cast<std::int64_t>(values.size()) != size) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} has {} entries, but {} is {}", name, values.size(), size_name, size), name);
  }
  return values;
}

}  // namespace

Result<DraftVocab> read_draft_map(const TensorSource& source, const DraftConfig& config, bool* ascending) {
  *ascending = true;
  const bool reduced = config.draft_vocab < config.vocab;
  if (source.find("d2t") == nullptr) {
    if (!reduced) return full_vocab(config.vocab);
    return bad_map(
        fmt::format("no map, though the draft speaks {} of {} tokens", config.draft_vocab, config.vocab));
  }
  EAGLET_ASSIGN_OR_RETURN(const auto d2t, read_sized(source, "d2t", config.draft_vocab, "draft_vocab_size"));
  // Any value beyond the vocabulary is nonsense either way; checked here so that no sum below can overflow.
  for (const std::int64_t value : d2t) {
    if (value < -config.vocab || value > config.vocab)
      return bad_map(fmt::format("entry {} is out of range", value));
  }
  const bool has_flags = source.find("t2d") != nullptr;
  if (has_flags) {
    EAGLET_ASSIGN_OR_RETURN(const auto flags, read_sized(source, "t2d", config.vocab, "vocab_size"));
    EAGLET_RETURN_IF_ERROR(check_against_flags(d2t, flags));
  } else if (reduced && std::all_of(d2t.begin(), d2t.end(), [](auto offset) { return offset == 0; })) {
    return bad_map("the map is all zeros and there is no t2d to confirm it");
  }
  auto vocab = vocab_from_offsets(d2t, config.vocab, ascending);
  if (!vocab.ok()) return vocab.status().at("d2t");
  return vocab;
}

}  // namespace eaglet
