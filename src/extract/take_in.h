#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "extract/foreign_check.h"
#include "store/store.h"

namespace eaglet {

/// Takes hidden states that another tool wrote into a store of ours.
struct TakeInOptions {
  std::string from, states_path;   // layout; directory
  std::string conversations_path;  // may be empty where the files hold ids and masks themselves
  std::string model_path;          // the target: a GGUF file, a transformers folder or its config.json
  std::string store_path;
  std::vector<std::int32_t> captured_layer_ids;  // what the slots hold, in order; empty: the layout's usual
  std::vector<std::int32_t> target_layer_ids;    // which of them to keep; empty: all but the last state
  std::string layer_convention = "input";        // how both lists count
  std::string backend;                           // modelopt: hf or vllm
  std::int64_t max_seq_len = 0;                  // cut documents to this many tokens; 0 = no cut
  StoreWriterOptions store;
  double wait_seconds = 10;  // for a lock, or a file that is still growing
  bool accept_doubtful = false, check_only = false, in_place = false, force = false;
};

struct TakeInReport {
  std::int64_t files = 0, used = 0, already_done = 0, unsupervised = 0;
  std::int64_t good = 0, doubtful = 0, bad = 0;
  std::int64_t by_problem[kStatesProblems] = {};
  struct LeftOut {
    std::string file, problem, reason;
  };
  std::vector<LeftOut> left_out;  // also doubtful ones that were not accepted
  std::string layers;             // what the slots hold and what is kept, in words; empty with check_only
  std::int64_t documents = 0, tokens = 0, supervised_tokens = 0;  // whole store
  std::uint64_t state_bytes = 0, source_bytes = 0;
  /// "bad 5 (NaN 1, infinity 1, cut/empty/header 3), doubtful 1, good 1".
  std::string summary() const;
};

/// What was left out stands in `<store>/left_out.jsonl` too. kDataLoss when nothing could be used.
Result<TakeInReport> take_in_states(const TakeInOptions& options, Progress& progress);

}  // namespace eaglet
