#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "extract/foreign_states.h"
#include "formats/conversations.h"

namespace eaglet {

/// Why a file of states is not taken.
enum class StatesProblem {
  kNone,
  kNan,
  kInfinity,
  kUnreadable,      // cut, empty, damaged, not of the layout
  kRowCount,        // other numbers of rows and of token ids
  kOtherTokens,     // not the conversation's ids
  kNoConversation,  // no conversation belongs to it
  kOtherShape,      // other slots or width than the rest
  kLocked,          // its writer still holds the lock
  kTeacher,         // the last state cannot be rebuilt from its probabilities
  kEmptySlot,       // doubtful only: a slot of zeros
};
constexpr int kStatesProblems = 11;
/// "NaN", "infinity", "cut/empty/header", ...: for summaries.
const char* problem_name(StatesProblem problem);

struct StatesVerdict {
  StatesProblem problem = StatesProblem::kNone;
  std::string reason;
  bool good() const { return problem == StatesProblem::kNone; }
  bool doubtful() const { return problem == StatesProblem::kEmptySlot; }
};

/// Finds the conversation of a file: by the row or the id that the file names, else by its token ids.
class ConversationIndex {
 public:
  explicit ConversationIndex(const ConversationFile& file);
  /// nullptr when none belongs to it.
  const Conversation* find(const ForeignStates& states) const;
  /// By all token ids but the first, where a file does not hold that one.
  const Conversation* find_without_first(const ForeignStates& states) const;

 private:
  const ConversationFile& file_;
  std::unordered_map<std::string, std::size_t> by_id_;
  std::unordered_map<std::uint64_t, std::size_t> by_tokens_, by_later_tokens_;
};

/// Rows against ids, ids against the conversation's (nullptr: the file's own count), every number finite, no
/// slot of zeros. `limit`: documents are cut to so many tokens, 0 = not; a file may have been made under the
/// same limit.
/// `used`: slots that matter for the last check; empty: all.
StatesVerdict check_foreign(const ForeignStates& states, const Conversation* conversation, std::int64_t limit,
                            const std::vector<std::size_t>& used = {});

/// Whether a process holds the lock beside a file of states.
bool states_locked(const std::string& path);

/// Opens a file of states. When its writer holds the lock beside it, or it is unreadable and still changing,
/// it is tried again for at most `wait_seconds`. A lock file that nobody holds means nothing.
Result<ForeignStates> open_when_ready(StatesLayout layout, const std::string& path, double wait_seconds);

}  // namespace eaglet
