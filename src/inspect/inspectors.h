#pragma once

#include <optional>

#include "base/files.h"
#include "inspect/inspect.h"

namespace eaglet {

// One inspector per kind of file; inspect() has found the kind. Facts are added behind "kind" and "path".

Result<Inspection> inspect_store(const InspectOptions& options, Progress& progress);  // a directory
Result<Inspection> inspect_shard(const InspectOptions& options, Progress& progress);  // one finished shard
Result<Inspection> inspect_unfinished_shard(const InspectOptions& options, Progress& progress);
Result<Inspection> inspect_checkpoint(const InspectOptions& options, Progress& progress);  // a directory
Result<Inspection> inspect_config(const InspectOptions& options,
                                  Progress& progress);  // a draft's config.json
Result<Inspection> inspect_safetensors(const InspectOptions& options, Progress& progress);
Result<Inspection> inspect_torch(const InspectOptions& options, Progress& progress);
Result<Inspection> inspect_npy(const InspectOptions& options, Progress& progress);
Result<Inspection> inspect_vocab_map(const InspectOptions& options,
                                     Progress& progress);  // a folder of d2t.npy, or our .safetensors
Result<Inspection> inspect_gguf(const InspectOptions& options, Progress& progress);
Result<Inspection> inspect_conversations(const InspectOptions& options, Progress& progress);
Result<Inspection> inspect_prompts(const InspectOptions& options, Progress& progress);
/// A folder of other tools' files of states, or folders of those: what the first one holds. Nothing when
/// there are none.
Result<std::optional<Inspection>> inspect_foreign_states(const InspectOptions& options, Progress& progress);

/// An Inspection that begins with kind and path.
Inspection begin_inspection(const std::string& kind, const std::string& path);
/// "count", "shortest", "median", "longest" of token counts; nothing when there are none.
Json length_facts(std::vector<std::int64_t> lengths);

}  // namespace eaglet
