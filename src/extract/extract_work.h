#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "extract/extract.h"
#include "formats/conversations.h"
#include "formats/target_model.h"
#include "store/store.h"

namespace eaglet {

// What making states comes to, whether the embedded target or a server makes them.

/// The conversations that are still to do, cut, without those that teach nothing.
struct ExtractWork {
  std::vector<Conversation> documents;
  std::int64_t already_done = 0, skipped_empty = 0, cut_away = 0, cut = 0;
  std::int64_t least_useful_limit = 0;  // the shortest limit that would keep one of those cut away
  std::int64_t longest = 0;
};
/// `begun`: the store that is gone on with, or nullptr; `server_limit`: a further limit of tokens, 0 = none.
/// kConfig: token ids outside the target's vocabulary, a store begun under another limit.
Result<ExtractWork> plan_work(std::vector<Conversation> conversations, const ExtractOptions& options,
                              const TargetFacts& facts, const StoreWriter* begun,
                              std::int64_t server_limit = 0);
/// Tokens that a document may have: the option's limit and the target's context; 0 = no limit.
std::int64_t length_limit(const ExtractOptions& options, const TargetFacts& facts);
/// The layers to capture: as asked, checked (kUsage), or the usual ones.
Result<std::vector<std::int32_t>> choose_layers(const ExtractOptions& options, const TargetFacts& facts);
/// What to say when there is no document to take.
Status nothing_to_learn(const ExtractWork& work, const ExtractOptions& options, std::uint64_t rows);
/// Notes on what was left out or cut.
void tell_work(const ExtractWork& work, Progress& progress);
/// kNoSpace when the states will not fit, unless forced; notes on what they take.
Status tell_forecast(const ExtractWork& work, const ExtractOptions& options, const StoreWriterOptions& store,
                     const StoreHeader& header, Progress& progress);

StoreHeader header_for(const TargetFacts& facts, std::vector<std::int32_t> layers,
                       const StoreWriterOptions& store);
/// Documents, tokens and bytes of the whole store.
Status add_totals(const ExtractOptions& options, ExtractReport* report);

}  // namespace eaglet
