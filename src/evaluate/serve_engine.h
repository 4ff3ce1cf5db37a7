#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// What one prompt's answer was and what it took.
struct EngineAnswer {
  std::vector<std::int32_t> tokens;
  double seconds = 0;                      // from the prompt processed to the last token
  std::int64_t drafted = 0, accepted = 0;  // accepted: drafted tokens that are part of the answer
  std::int64_t passes = 0;                 // of the target, after the prompt's
  std::vector<std::int64_t> accepted_at;   // by draft position
};

/// A target and a draft in llama.cpp, one sequence at a time, greedy (lowest id among equal logits). Drafts
/// come from llama.cpp's own speculative code (common/speculative.h, draft-eagle3), driven as its server
/// drives it: the first token comes from the prompt's pass; then draft, one pass over the last token and the
/// draft, keep what the target agrees with. Plain answers are made in a context of their own, which takes no
/// states. Not thread-safe.
class ServeEngine {
 public:
  /// Both models, with room for `max_context` tokens a prompt. kNotFound, kDataLoss, kConfig (a draft of
  /// another target, a target whose states llama.cpp cannot take), kNoSpace.
  static Result<std::unique_ptr<ServeEngine>> load(const std::string& target_path,
                                                   const std::string& draft_path, std::int64_t max_context,
                                                   std::int64_t max_draft_length, int threads);
  virtual ~ServeEngine() = default;

  /// At most `max_tokens`, fewer when an end token comes (it is part of the answer). kInterrupted between
  /// tokens.
  virtual Result<EngineAnswer> plain(const std::vector<std::int32_t>& prompt, std::int64_t max_tokens) = 0;
  virtual Result<EngineAnswer> drafted(const std::vector<std::int32_t>& prompt, std::int64_t max_tokens,
                                       std::int64_t draft_length) = 0;
  /// The target's logits after `tokens`, [vocab]: the first `together` tokens in one pass, the rest one by
  /// one.
  virtual Result<std::vector<float>> logits_after(const std::vector<std::int32_t>& tokens,
                                                  std::size_t together) = 0;
};

}  // namespace eaglet
