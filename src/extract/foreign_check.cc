#include "extract/foreign_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/hash.h"
#include "base/interrupt.h"

namespace eaglet {
namespace {

constexpr double kSettledSeconds = 0.4;  // a file that did not change for so long is not being written
constexpr auto kPause = std::chrono::milliseconds(50);

std::uint64_t hash_of(const std::vector<std::int32_t>& ids, std::size_t from = 0) {
  return ids.size() < from ? 0 : xxh64(ids.data() + from, (ids.size() - from) * sizeof(std::int32_t));
}

/// vLLM's writer holds an exclusive flock on the file beside; others use a record lock.
bool is_locked(const std::string& lock_path) {
  // A link would lead to a file that nobody named.
  const int fd = ::open(lock_path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  struct flock record = {};
  record.l_type = F_WRLCK;
  record.l_whence = SEEK_SET;
  const bool record_held = ::fcntl(fd, F_GETLK, &record) == 0 && record.l_type != F_UNLCK;
  const bool held = record_held || ::flock(fd, LOCK_SH | LOCK_NB) != 0;
  ::close(fd);
  return held;
}

struct FileState {
  std::int64_t bytes = -1, seconds = 0, nanoseconds = 0;
  bool operator==(const FileState&) const = default;
};
FileState state_of(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

StatesVerdict bad(StatesProblem problem, std::string reason) {
  return {problem, std::move(reason)};
}

StatesVerdict check_tokens(const ForeignStates& states, const Conversation& conversation,
                           std::int64_t limit) {
  const auto& stored = states.input_ids;
  const auto& wanted = conversation.input_ids;
  const std::size_t same = static_cast<std::size_t>(
      std::mismatch(stored.begin(), stored.end(), wanted.begin(), wanted.end()).first - stored.begin());
  const bool cut_alike =
      limit > 0 && stored.size() == static_cast<std::size_t>(limit) && wanted.size() > stored.size();
  if (same == stored.size() && (stored.size() == wanted.size() || cut_alike)) return {};
  if (same == std::min(stored.size(), wanted.size()))
    return bad(StatesProblem::kOtherTokens, fmt::format("it has {} token ids, the conversation '{}' has {}",
                                                        stored.size(), conversation.id, wanted.size()));
  return bad(StatesProblem::kOtherTokens,
             fmt::format("its token ids are not those of the conversation '{}': first at position {} ({} "
                         "instead of {})",
                         conversation.id, same, stored[same], wanted[same]));
}

/// Row by row, so that the first bad one is named.
StatesVerdict check_numbers(const ForeignStates& states, const std::vector<std::size_t>& used) {
  std::vector<float> row(static_cast<std::size_t>(states.width));
  std::vector<bool> zero(states.slots.size(), used.empty());
  for (const std::size_t slot : used) zero[slot] = true;
  for (std::int64_t r = 0; r < states.rows; ++r) {
    for (std::size_t slot = 0; slot < states.slots.size(); ++slot) {
      states.row_f32(slot, r, row.data());
      const auto at = std::find_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
      if (at != row.end())
        return bad(std::isnan(*at) ? StatesProblem::kNan : StatesProblem::kInfinity,
                   fmt::format("row {}, slot {} of {} holds {}", r, slot, states.slots.size(),
                               std::isnan(*at) ? "a NaN" : "an infinity"));
      if (zero[slot]) zero[slot] = std::all_of(row.begin(), row.end(), [](float v) { return v == 0; });
    }
  }
  const auto empty = std::find(zero.begin(), zero.end(), true);
  if (empty == zero.end()) return {};
  return bad(StatesProblem::kEmptySlot, fmt::format("slot {} of {} is zero for every token: nobody wrote it",
                                                    empty - zero.begin(), states.slots.size()));
}

}  // namespace

const char* problem_name(StatesProblem problem) {
  static constexpr const char* kNames[kStatesProblems] = {"good",
                                                          "NaN",
                                                          "infinity",
                                                          "cut/empty/header",
                                                          "rows are not the tokens'",
                                                          "other tokens",
                                                          "no conversation",
                                                          "other shape",
                                                          "locked",
                                                          "another teacher",
                                                          "empty slot"};
  return kNames[static_cast<std::size_t>(problem)];
}

ConversationIndex::ConversationIndex(const ConversationFile& file) : file_(file) {
  for (std::size_t i = 0; i < file.conversations.size(); ++i) {
    by_id_.emplace(file.conversations[i].id, i);
    by_tokens_.emplace(hash_of(file.conversations[i].input_ids), i);
    by_later_tokens_.emplace(hash_of(file.conversations[i].input_ids, 1), i);
  }
}

const Conversation* ConversationIndex::find(const ForeignStates& states) const {
  const auto& rows = file_.conversations;
  // A row number counts lines; with lines left out the numbers would point elsewhere.
  const bool numbered = file_.broken.empty() && file_.blank_lines == 0;
  if (numbered && states.conversation_row >= 0 &&
      states.conversation_row < static_cast<std::int64_t>(rows.size()))
    return &rows[static_cast<std::size_t>(states.conversation_row)];
  if (const auto it = by_id_.find(states.conversation_id); it != by_id_.end()) return &rows[it->second];
  const auto it = by_tokens_.find(hash_of(states.input_ids));
  return it == by_tokens_.end() ? nullptr : &rows[it->second];
}

const Conversation* ConversationIndex::find_without_first(const ForeignStates& states) const {
  const auto it = by_later_tokens_.find(hash_of(states.input_ids, 1));
  return it == by_later_tokens_.end() ? nullptr : &file_.conversations[it->second];
}

StatesVerdict check_foreign(const ForeignStates& states, const Conversation* conversation, std::int64_t limit,
                            const std::vector<std::size_t>& used) {
  if (states.rows != static_cast<std::int64_t>(states.input_ids.size()))
    return bad(
        StatesProblem::kRowCount,
        fmt::format("{} token ids but {} rows of states: the server reused a cached prefix (switch its "
                    "prefix cache off: --no-enable-prefix-caching) and the first rows were never computed",
                    states.input_ids.size(), states.rows));
  if (states.rows == 0) return bad(StatesProblem::kUnreadable, "it holds no token");
  if (conversation != nullptr)
    if (StatesVerdict tokens = check_tokens(states, *conversation, limit); !tokens.good()) return tokens;
  return check_numbers(states, used);
}

bool states_locked(const std::string& path) {
  return is_locked(path + ".lock");
}

Result<ForeignStates> open_when_ready(StatesLayout layout, const std::string& path, double wait_seconds) {
  const double end = monotonic_seconds() + wait_seconds;
  const std::string lock = path + ".lock";
  while (is_locked(lock)) {
    if (monotonic_seconds() >= end || interrupted())
      return Status(StatusCode::kBusy,
                    fmt::format("its writer still holds the lock after {:.1f} s", wait_seconds), lock,
                    "is that process alive? then run this command again later");
    std::this_thread::sleep_for(kPause);
  }
  FileState before = state_of(path);
  double settled_at = monotonic_seconds() + kSettledSeconds;
  while (true) {
    auto states = open_foreign_states(layout, path);
    if (states.ok() || states.status().code() != StatusCode::kDataLoss) return states;
    const double now = monotonic_seconds();
    const FileState state = state_of(path);
    if (state != before) settled_at = now + kSettledSeconds;
    before = state;
    if (now >= std::min(settled_at, end) || interrupted()) return states;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace eaglet
