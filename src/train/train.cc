#include "train/train.h"

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "base/files.h"
#include "formats/target_model.h"
#include "train/train_run.h"
#include "train/train_settings.h"

namespace eaglet {
namespace {

Result<TrainReport> train_locked(const TrainOptions& options, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts target, read_target_facts(options.model_path));
  EAGLET_ASSIGN_OR_RETURN(const TargetWeights weights, read_target_weights(options.model_path));
  return train_on_target(options, target, weights, progress);
}

}  // namespace

Result<TrainReport> train(const TrainOptions& options, Progress& progress) {
  try {
    EAGLET_RETURN_IF_ERROR(check_train_options(options));
    std::optional<DirectoryLock> lock;
    if (options.comm == nullptr || options.comm->rank() == 0) {
      EAGLET_ASSIGN_OR_RETURN(DirectoryLock taken, DirectoryLock::take(options.output_dir));
      lock.emplace(std::move(taken));
    }
    return train_locked(options, progress);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kNoSpace, "not enough memory to train this draft", options.output_dir,
                  "use a smaller --max-seq-len or --draft-vocab-size; checkpoints that were saved are whole");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, std::string("unexpected: ") + error.what(), options.output_dir,
                  "please report this; checkpoints that were saved are whole");
  }
}

}  // namespace eaglet
