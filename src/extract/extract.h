#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "formats/conversations.h"
#include "store/store.h"

namespace eaglet {

struct ExtractOptions {
  std::string model_path;
  std::string conversations_path;
  std::string store_path;                      // directory
  std::vector<std::int32_t> target_layer_ids;  // empty: [2, L/2, L-3]; the last state is always added
  std::int64_t max_seq_len = 0;                // cut documents to this many tokens; 0 = no cut
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;
  int threads = 0;
  std::string weights = "auto";  // auto | stored | f16 | f32: TargetWeightsAs
  bool force = false;            // go on although the forecast does not fit the disk
};

struct ExtractReport {
  std::int64_t documents = 0, already_done = 0, broken_lines = 0;
  std::int64_t skipped_empty = 0, cut_away = 0;    // nothing supervised; nothing left under the length limit
  std::int64_t tokens = 0, supervised_tokens = 0;  // whole store
  std::uint64_t state_bytes = 0;                   // whole store on disk
  double seconds = 0, tokens_per_second = 0;       // this run
};

Result<ExtractReport> extract(const ExtractOptions& options, Progress& progress);

/// The documents that extract() would take states of, in its order, and the header it would write. No state
/// is made.
struct ExtractPlan {
  StoreHeader header;
  std::vector<Conversation> documents;
};
Result<ExtractPlan> plan_extraction(const ExtractOptions& options);

}  // namespace eaglet
