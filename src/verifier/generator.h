#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "verifier/sampling.h"
#include "verifier/target.h"

namespace eaglet {

struct GeneratorOptions {
  int parallel = 16;                     // sequences decoded together
  std::int64_t longest_sequence = 2048;  // prompt and answer of the longest request
  SamplingOptions sampling = {};
};

struct GenerationRequest {
  std::size_t tag = 0;               // handed back with the answer
  std::vector<std::int32_t> prompt;  // at least one token
  std::int64_t max_tokens = 1;       // at least 1
  std::uint32_t seed = 0;            // of this request alone; not read when greedy
};

/// What a draft did for an answer: passes of the target after the prompt's, tokens drafted, and of those
/// accepted into the answer, in all and by position.
struct DraftCounts {
  std::int64_t passes = 0, drafted = 0, accepted = 0;
  std::vector<std::int64_t> accepted_at = {};
  void add(const DraftCounts& more);
  /// Tokens per pass after the prompt's: each pass gives one more than it accepts.
  double acceptance_length() const {
    return passes > 0 ? 1 + static_cast<double>(accepted) / static_cast<double>(passes) : 0;
  }
};

struct GeneratedAnswer {
  std::size_t tag = 0;
  std::vector<std::int32_t> tokens;  // with the end token when `stopped`
  bool stopped = false;              // false: cut at max_tokens
  // bf16 [prompt and answer tokens, slots, hidden] where the generator was told to keep states; else empty
  std::vector<std::uint16_t> states = {};
  DraftCounts drafts = {};         // empty without a draft
  std::int64_t reused_tokens = 0;  // of the prompt: what an earlier sequence kept of the same beginning
};

/// Answers many requests together: a slot that becomes free is filled at once. A request's tokens depend on
/// its prompt and seed, not on slot, order or neighbours, up to one thing: sums of a batched product may
/// round differently with another batch size, so a tie within rounding may fall the other way in another run.
class Generator {
 public:
  /// `target` must outlive the generator. kNoSpace when the cache does not fit the memory.
  static Result<std::unique_ptr<Generator>> create(const Target& target, const GeneratorOptions& options);
  virtual ~Generator() = default;
  /// Asks `next` for requests until it has none, hands each answer to `done` as soon as it is complete, calls
  /// `tick(answer tokens so far, sequences in flight)` after every pass. A failure of `done` or `tick` ends
  /// the run and comes back; answers in flight are then lost.
  virtual Status run(const std::function<std::optional<GenerationRequest>()>& next,
                     const std::function<Status(const GeneratedAnswer&)>& done,
                     const std::function<Status(std::int64_t, int)>& tick) = 0;
};

}  // namespace eaglet
