#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "device/accelerator.h"

namespace eaglet {

struct EvaluateOptions {
  std::string draft_path, model_path, store_path;  // checkpoint directory, target GGUF, states/
  std::int64_t hold_out_every = 10;                // 0: every document of the store
  std::int64_t ttt_steps = 3;                      // depths evaluated
  std::int64_t max_seq_len = 2048;
  std::vector<std::string> ids;  // these documents instead of every hold_out_every-th
  /// Of these documents only the first answer counts, and of it so many tokens, as if the row ended there.
  std::map<std::string, std::int64_t> answer_tokens;
  double temperature = 0;  // > 0: also what a server that samples at it would accept
  int threads = 0;
  Accelerator* device = nullptr;  // where the draft computes; nullptr: this machine's processor
};

struct DepthAcceptance {
  double right = 0, total = 0;  // against the target's best over the whole vocabulary
  double right_in_vocab = 0;    // against its best inside the draft vocabulary (training's full_acc)
  double counted = 0;           // rows p whose row p+k is supervised: what the loss is a mean over
  double loss = 0;              // mean kl over counted rows
  /// Sum of sum min(p, q) at the temperature over the rows looked at; see overlap.h.
  double overlap = 0, overlap_rows = 0;
};
struct WalkedAcceptance {
  std::int64_t draft_length = 0;    // N
  double tokens = 0, accepted = 0;  // tokens of the answers; how many of them a draft had right
  /// tokens / (tokens - accepted): tokens per pass of the target, as ServedLength counts them.
  double acceptance_length() const { return tokens > accepted ? tokens / (tokens - accepted) : 0; }
  double drafts = 0;                // passes that had a draft: all but each prompt's
  std::vector<double> accepted_at;  // [N] of these, in how many position i was accepted
};
struct EvaluateReport {
  std::int64_t documents = 0, supervised_tokens = 0;
  std::vector<DepthAcceptance> depth;
  double acceptance_length = 0;           // 1 + sum right/total, every supervised row
  double teacher_best_outside_share = 0;  // supervised rows whose best token the draft vocabulary lacks
  double answer_is_target_best_share =
      0;  // of the answers' tokens: how many the target, as we compute it, ranks first
  std::vector<WalkedAcceptance> walked;  // N = 1..ttt_steps
  std::vector<std::string> document_ids;
};
Result<EvaluateReport> evaluate(const EvaluateOptions& options, Progress& progress);

/// The real thing: prompts through llama.cpp with and without the draft, greedy.
struct ServeOptions {
  std::string target_path;  // GGUF as it is served (see --serve-type)
  std::string draft_gguf;
  std::string conversations_path;  // prompts = tokens before the answer; as many tokens as the answer has
  std::vector<std::string> ids;    // which rows; empty = all
  std::vector<std::int64_t> draft_lengths = {1, 2, 3, 4, 5, 6};
  std::int64_t max_tokens = 0;  // 0: as many as the recorded answer
  int threads = 0;
  /// Called when target and draft are in memory: a draft made for this may be unlinked then.
  std::function<void()> loaded;
};
struct ServedLength {
  std::int64_t draft_length = 0;
  /// tokens of all answers; drafted, and of those accepted into an answer; passes of the target after the
  /// prompt's; seconds from the prompt processed to the answer's end.
  double tokens = 0, drafted = 0, accepted = 0, passes = 0, seconds = 0;
  std::vector<double> accepted_at;  // by draft position: passes in which it was accepted
  /// Tokens per pass as servers count it: the prompt's pass gives a token too.
  double acceptance_length() const { return tokens > accepted ? tokens / (tokens - accepted) : 0; }
  double tokens_per_second() const { return seconds > 0 ? tokens / seconds : 0; }
};
/// Where an answer with the draft first leaves the plain one. A tie is excused: the two logits are closer
/// than twice what `rounding` shows, the largest change of any logit there when the same tokens are processed
/// in other groups.
struct ServeDifference {
  std::string id;
  std::int64_t draft_length = 0;
  std::int64_t position = 0;              // in the answer, from 0
  std::int32_t plain = -1, drafted = -1;  // tokens; -1: the answer had ended
  double plain_logit = 0, drafted_logit = 0, rounding = 0;
  bool excused_tie = false;
};
struct ServeReport {
  std::string engine;      // "llama.cpp", or "our own engine"
  double temperature = 0;  // above 0: sampled; texts are then not compared
  std::int64_t prompts = 0, at_once = 1;
  double plain_tokens = 0, plain_seconds = 0;
  std::vector<ServedLength> lengths;
  std::vector<ServeDifference> differences;
  double plain_tokens_per_second() const { return plain_seconds > 0 ? plain_tokens / plain_seconds : 0; }
  bool identical() const;  // no difference but excused ones
};
/// Prompts through llama.cpp, one after the other. kNotFound (a file, or an id that no row has), kDataLoss,
/// kConfig, kInterrupted; docs/serving.md.
Result<ServeReport> serve(const ServeOptions& options, Progress& progress);

}  // namespace eaglet
