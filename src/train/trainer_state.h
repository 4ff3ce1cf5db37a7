#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// Metrics over the held-out documents after a step.
struct Validation {
  std::int64_t step = -1;  // -1: none was made
  double acceptance_length = 0, total_loss = 0;
  std::vector<double> loss, full_acc, cond_acc;  // by depth
};

/// Where a run stands after a step: trainer_state.json of a checkpoint. Holds no clock time and no process
/// facts, so that a resumed run writes the same bytes as one that was never stopped.
struct TrainerState {
  std::int64_t step = -1;                  // last finished step; the next one is step + 1
  std::int64_t epoch = 0, next_batch = 0;  // of the next step
  std::int64_t batches_per_epoch = 0;
  std::int64_t threads = 0;    // the bits of a run hold for one thread count
  std::string device = "cpu";  // and one kind of device: "cpu", or the accelerator's name
  double first_loss = 0, last_loss = 0;
  double covered_share = 1;  // supervised training tokens inside the draft vocabulary
  std::int64_t best_step = -1;
  double best_acceptance_length = 0;
  std::int64_t stale_validations = 0;  // since the best one
  std::int64_t skipped_updates = 0;    // left out because they were not finite
  std::int64_t tokens = 0;             // real ones of all steps; -1: not known, an older eaglet began the run
  Validation last_validation;
  /// A step over so many batches, with so many real tokens, is done.
  void advance(std::int64_t batches, std::int64_t tokens_of_step);
  Json settings;  // what must not change on resume (train_settings.h)
};

Json trainer_state_to_json(const TrainerState& state);
/// kDataLoss names the field.
Result<TrainerState> trainer_state_from_json(const Json& json);

}  // namespace eaglet
