#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "batch/loader.h"
#include "formats/target_model.h"
#include "store/store.h"
#include "train/train.h"

namespace eaglet {

/// A store split into training and held-out documents, and how each is packed.
struct TrainData {
  std::unique_ptr<StoreReader> store;
  std::vector<std::size_t> training, held_out;  // store indices, ascending
  PackPlan training_plan, held_out_plan;
  bool can_validate = false;  // some held-out row is supervised
  BatchStates states = BatchStates::kLoaded;
  /// What states come to a device as.
  StateForm state_form() const {
    return states == BatchStates::kLoaded ? StateForm::kF32 : store->stored_form();
  }
};

/// Store indices 0, n, 2n, ... are held out, the rest trained on; n = 0 holds out none.
void split_documents(std::size_t documents, std::int64_t hold_out_every, std::vector<std::size_t>* training,
                     std::vector<std::size_t>* held_out);

/// Opens the store and refuses what cannot be trained on: states of another target (both are named), no
/// document, nothing supervised, a max_seq_len shorter than every document.
Result<TrainData> open_train_data(const TrainOptions& options, const TargetFacts& target);

/// How often each target token is supervised in the given documents: [vocab]. Touches no state.
Result<std::vector<std::int64_t>> count_supervised(const StoreReader& store,
                                                   const std::vector<std::size_t>& documents,
                                                   std::int64_t vocab);

}  // namespace eaglet
