#include "vocab/draft_vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace eaglet {
namespace {

Status invalid(const std::string& what, const std::string& todo = {}) {
  return Status(StatusCode::kInvalidArgument, what, "", todo);
}

constexpr const char* kMapAdvice =
    "the map must hold offsets (target id = draft id + d2t[draft id]); have the tool that made it write it "
    "again";

Status corrupt_map(const std::string& what) {
  return Status(StatusCode::kDataLoss, what, "", kMapAdvice);
}

/// Marks `ids` with `rank` where they have a lower one so far.
Status mark(const std::vector<std::int32_t>& ids, std::uint8_t rank, const char* what,
            std::vector<std::uint8_t>* ranks) {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= ranks->size())
      return invalid(
          fmt::format("the {} id {} is outside the target vocabulary of {}", what, id, ranks->size()));
    (*ranks)[static_cast<std::size_t>(id)] = std::max((*ranks)[static_cast<std::size_t>(id)], rank);
  }
  return {};
}

}  // namespace

std::vector<std::int32_t> DraftVocab::target_to_draft() const {
  std::vector<std::int32_t> map(static_cast<std::size_t>(target_vocab), -1);
  for (std::size_t i = 0; i < target_ids.size(); ++i)
    map[static_cast<std::size_t>(target_ids[i])] = static_cast<std::int32_t>(i);
  return map;
}

std::vector<std::int64_t> DraftVocab::d2t_offsets() const {
  std::vector<std::int64_t> offsets(target_ids.size());
  for (std::size_t i = 0; i < target_ids.size(); ++i)
    offsets[i] = target_ids[i] - static_cast<std::int64_t>(i);
  return offsets;
}

std::vector<std::uint8_t> DraftVocab::t2d_flags() const {
  std::vector<std::uint8_t> flags(static_cast<std::size_t>(target_vocab), 0);
  for (const std::int32_t id : target_ids) flags[static_cast<std::size_t>(id)] = 1;
  return flags;
}

Result<DraftVocab> choose_draft_vocab(const std::vector<std::int64_t>& counts,
                                      const std::vector<std::int32_t>& special_ids,
                                      const std::vector<std::int32_t>& end_ids,
                                      std::int64_t draft_vocab_size) {
  const auto target_vocab = static_cast<std::int64_t>(counts.size());
  if (draft_vocab_size < 1 || draft_vocab_size > target_vocab)
    return invalid(fmt::format("a draft vocabulary of {} is not within the target's vocabulary of {}",
                               draft_vocab_size, target_vocab),
                   fmt::format("choose --draft-vocab-size from 1 to {}", target_vocab));
  if (std::any_of(counts.begin(), counts.end(), [](std::int64_t count) { return count < 0; }))
    return invalid("a token count is negative");
  std::vector<std::uint8_t> ranks(counts.size(), 0);  // 2 ends a turn, 1 special, 0 any other
  EAGLET_RETURN_IF_ERROR(mark(special_ids, 1, "special", &ranks));
  EAGLET_RETURN_IF_ERROR(mark(end_ids, 2, "end-of-turn", &ranks));

  std::vector<std::int32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    return ranks[i] != ranks[j] ? ranks[i] > ranks[j]
                                : counts[i] > counts[j];  // equal: the lower id stays first
  });
  order.resize(static_cast<std::size_t>(draft_vocab_size));
  std::sort(order.begin(), order.end());
  return DraftVocab{target_vocab, std::move(order)};
}

double covered_share(const DraftVocab& vocab, const std::vector<std::int64_t>& counts) {
  double all = 0, covered = 0;
  for (const std::int64_t count : counts) all += static_cast<double>(count);
  for (const std::int32_t id : vocab.target_ids)
    if (static_cast<std::size_t>(id) < counts.size())
      covered += static_cast<double>(counts[static_cast<std::size_t>(id)]);
  return all > 0 ? covered / all : 1.0;
}

Result<DraftVocab> vocab_from_offsets(const std::vector<std::int64_t>& d2t, std::int64_t target_vocab,
                                      bool* ascending) {
  if (d2t.empty()) return corrupt_map("the draft-to-target map d2t is empty");
  if (target_vocab < 1 || target_vocab > std::numeric_limits<std::int32_t>::max())
    return invalid(fmt::format("a target vocabulary of {} is not possible", target_vocab));
  if (static_cast<std::int64_t>(d2t.size()) > target_vocab)
    return corrupt_map(fmt::format("the draft-to-target map has {} entries for a target vocabulary of {}",
                                   d2t.size(), target_vocab));
  DraftVocab vocab{target_vocab, {}};
  vocab.target_ids.reserve(d2t.size());
  for (std::size_t draft = 0; draft < d2t.size(); ++draft) {
    std::int64_t target = 0;
    if (__builtin_add_overflow(static_cast<std::int64_t>(draft), d2t[draft], &target) || target < 0 ||
        target >= target_vocab)
      return corrupt_map(
          fmt::format("draft id {} with d2t offset {} lies outside the target vocabulary of {}", draft,
                      d2t[draft], target_vocab));
    vocab.target_ids.push_back(static_cast<std::int32_t>(target));
  }
  std::vector<std::int32_t> sorted = vocab.target_ids;  // not one flag per target id: target_vocab is foreign
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return corrupt_map(fmt::format("two draft ids stand for the target id {}", *twice));
  if (ascending != nullptr) *ascending = sorted == vocab.target_ids;
  return vocab;
}

Status check_t2d(const DraftVocab& vocab, const std::vector<std::int64_t>& t2d) {
  if (static_cast<std::int64_t>(t2d.size()) != vocab.target_vocab)
    return corrupt_map(
        fmt::format("t2d has {} entries but the target vocabulary is {}", t2d.size(), vocab.target_vocab));
  const std::vector<std::uint8_t> flags = vocab.t2d_flags();
  for (std::size_t id = 0; id < flags.size(); ++id)
    if ((t2d[id] != 0) != (flags[id] != 0))
      return corrupt_map(fmt::format("d2t and t2d disagree: target id {} is {} the map d2t gives but {} t2d",
                                     id, flags[id] != 0 ? "in" : "not in", t2d[id] != 0 ? "in" : "not in"));
  return {};
}

}  // namespace eaglet
