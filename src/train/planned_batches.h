#pragma once

#include <vector>

#include "base/status.h"
#include "formats/target_model.h"
#include "train/token_rows.h"
#include "train/train.h"

namespace eaglet {

/// Batches of a run's first epoch without their states, spread evenly over it; and what the epoch's documents
/// are like.
struct PlannedBatches {
  std::vector<TokenRows> rows;
  std::int64_t batches = 0;                          // of the epoch
  double document_tokens = 0, supervised_share = 0;  // means over all of it
  StateForm form = StateForm::kBF16;  // what its states would go to a device as
  /// Real tokens of a batch, mean over the epoch.
  double tokens = 0;
};
/// At most `most` of them. Errors: those of open_train_data().
Result<PlannedBatches> planned_batches(const TrainOptions& options, const TargetFacts& target,
                                       std::size_t most);

}  // namespace eaglet
