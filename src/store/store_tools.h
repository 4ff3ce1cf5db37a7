#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "store/store.h"

namespace eaglet {

struct CopyReport {
  std::int64_t documents = 0, already_there = 0, left_out = 0;
};

/// Documents of `inputs` that `wanted` takes, in stored order, into the store at `output`: merges stores,
/// takes a subset, changes the form of the states. The target and the layers of all must be the same
/// (kConfig). An interrupted copy goes on.
Result<CopyReport> copy_store(const std::vector<std::string>& inputs, const std::string& output,
                              const StoreWriterOptions& options,
                              const std::function<bool(const StoredDocument&)>& wanted, Progress& progress);

struct RepairReport {
  std::int64_t shards = 0, kept = 0;
  std::vector<std::string> lost;  // ids of the documents that could not be read, where they are known
};

/// For every shard that is damaged: its whole documents go into a new shard of the same number, the damaged
/// file stays beside as NNNNNN.shard.damaged. Documents that were lost are made again by the extract command
/// that made the store. kBusy when somebody writes there.
Result<RepairReport> repair_store(const std::string& directory, Progress& progress);

}  // namespace eaglet
