#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "evaluate/evaluate.h"

namespace eaglet {

/// A running server that has the draft loaded (docs/serving.md).
struct ServerAcceptanceOptions {
  std::string url, model, kind = "auto";
  std::string api_key_env = "EAGLET_API_KEY", ca_file;
  std::string conversations_path;  // prompts = tokens before the answer
  std::vector<std::string> ids;    // which rows; empty = all
  std::int64_t max_tokens = 0;     // 0: as many as the recorded answer
  /// Tokens of each row whose states are stored, where rows were cut: the server is asked for no more than
  /// the walk covers. Rows that are not in it are whole.
  std::map<std::string, std::int64_t> stored_tokens;
  /// A walk over the recorded answers follows. Where the server says less than 98 % of them again, it is
  /// asked a second time, each prompt only as far as its answer was the recorded one, and only that counts.
  bool for_walk = false;
  std::int64_t draft_length = 0;  // as the server was started; 0: as its metrics tell
  std::int64_t concurrency = 4;
  double timeout_seconds = 600;
};

struct ServerAcceptance {
  std::string url, kind, model;
  std::string source;  // where the numbers come from: "metrics", "timings", "meta_info"
  std::int64_t prompts = 0, failed = 0, draft_length = 0;
  /// tokens of all answers (the server's own count); drafted, and of those accepted.
  double tokens = 0, drafted = 0, accepted = 0;
  double drafts = 0;                // passes that had a draft; 0: not told
  std::vector<double> accepted_at;  // by draft position; empty: not told
  double same_share = 0;            // of the answers' tokens: how many are those of the recorded answers
  bool asked_again = false;         // the numbers are those of the second time; see for_walk
  /// Rows that the numbers are about, and the answer's tokens that the server wrote of each: what a walk has
  /// to cover to be comparable.
  std::map<std::string, std::int64_t> answer_tokens;
  /// Tokens per pass as ServedLength and WalkedAcceptance count it.
  double acceptance_length() const { return tokens > accepted ? tokens / (tokens - accepted) : 0; }
};

/// Sends the rows' prompts, greedy, and reads what was accepted: vLLM's and llama-server's counters before
/// and after, or what each answer tells. Nobody else may use the server meanwhile. kUnavailable (not ready,
/// or it tells nothing about drafts: no draft is loaded), kNotFound (a row), kInterrupted; kInvalidArgument
/// for a walk when hardly a token of the recorded answers is the server's.
Result<ServerAcceptance> measure_server(const ServerAcceptanceOptions& options, Progress& progress);

/// The server's acceptance beside our walk at the same draft length.
struct ServerVerdict {
  double walked = 0, ratio = 0;     // acceptance lengths: ours, server / ours
  bool good = true;                 // not below 0.9 of ours
  std::vector<std::string> causes;  // the likeliest first; only when not good
};
/// `passes`: of the walk. Below 0.9 of the walk's length, or less than half of its accepted tokens where the
/// walk accepts enough to tell (30), is not good: a draft of which nothing is accepted is never good.
ServerVerdict judge_server(const ServerAcceptance& served, const WalkedAcceptance& walked);

}  // namespace eaglet
