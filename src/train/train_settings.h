#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/draft_model.h"
#include "formats/json.h"
#include "store/store.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/train.h"

namespace eaglet {

/// Values and combinations that can be judged without any file. kUsage names the flag.
Status check_train_options(const TrainOptions& options);

/// accumulation_steps times the ranks.
std::int64_t batches_per_update(const TrainOptions& options);
/// "300", "300s", "90m", "2h", "1d" in seconds; none for anything else.
std::optional<double> seconds_of(const std::string& duration);
OptimizerOptions optimizer_options(const TrainOptions& options);
/// What the draft's steps are made with; the options are checked ones.
TttOptions ttt_options(const TrainOptions& options, ComputeType compute_type);
/// Numbers with commas between them; nothing for anything else.
std::optional<std::vector<double>> numbers_of(const std::string& list);

/// What the options became once store and target were known; goes over the options in every record.
struct EffectiveSettings {
  Schedule schedule;
  std::int64_t total_steps = 0, draft_vocab_size = 0, intermediate_size = 0;
  int threads = 0;
  std::string device = "cpu";  // or the accelerator's name
  ComputeType compute_type = ComputeType::kF32;
  std::int64_t batches_per_update = 1;  // over all ranks
  std::string target_identity, store_fingerprint;
};

/// Documents and header of a store in 16 hex digits: equal as long as no document was added, cut or changed
/// in length.
std::string store_fingerprint(const StoreReader& store);

/// Every flag in snake_case with its effective value, flat: the first part of train_config.json.
Json train_flags(const TrainOptions& options, const EffectiveSettings& effective);
/// The part of it that fixes the numbers of a run: changing one on resume would make another run.
Json fixed_settings(const TrainOptions& options, const EffectiveSettings& effective);
/// kConfig names every setting that differs ("seed: 42 then, 7 now").
Status check_same_settings(const Json& before, const Json& now);

}  // namespace eaglet
