#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "extract/extract_work.h"
#include "formats/conversations.h"
#include "store/store.h"
#include "target/target_forward.h"

namespace eaglet {

/// Documents [first, first + count) that go through the layers together.
struct NativePass {
  std::size_t first = 0, count = 0;
  std::int64_t tokens = 0;
};

/// Passes that fit into `memory_bytes` with one layer's weights (the target's spill directory takes their
/// rows, where there is one: then half of what is free there bounds them); no document is divided. Nor are
/// they longer than it takes to hide the reading of the weights behind the arithmetic, since a kill loses the
/// pass it falls into. kNoSpace, with what is needed, when the longest document does not fit.
Result<std::vector<NativePass>> plan_native_passes(const TargetForward& target,
                                                   const std::vector<Conversation>& documents,
                                                   std::int64_t slots, std::uint64_t memory_bytes);

/// bf16 [tokens, slots, hidden] of the header's layers and the last state, of one document.
Result<std::vector<std::uint16_t>> native_document_states(const std::vector<std::int32_t>& ids,
                                                          const StoreHeader& header, TargetForward* target);

/// Runs one pass and appends its documents, in order, to the store: bf16 states of the header's layers and
/// the last. `on_layer(k)` is told of each layer that is done. After a failure or a signal the store holds
/// the earlier passes.
Status run_native_pass(const NativePass& pass, const StoreHeader& header,
                       std::vector<Conversation>* documents,
                       const std::function<void(std::int64_t)>& on_layer, TargetForward* target,
                       StoreWriter* writer);

/// What to say when a pass of `seconds` stood still for `waited` of them because its weights were not there
/// yet; empty when that is little.
std::string tell_waiting(double seconds, double waited, std::uint64_t weight_bytes);

/// The native engine's part of extract(): pass after pass, every document of a pass through a layer before
/// the next layer is read. What is in the store stays on any failure.
Status take_states_natively(ExtractWork* work, const ExtractOptions& options, const StoreHeader& header,
                            StoreWriter* writer, ExtractReport* report, Progress& progress);

}  // namespace eaglet
