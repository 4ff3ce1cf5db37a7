#include "train/train_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/interrupt.h"
#include "batch/store_rows.h"

namespace eaglet {
namespace {

Status check_target(const StoreHeader& header, const std::string& store_path, const TargetFacts& target) {
  if (header.target_identity != target.identity)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the states were made with another target: {} ({}), not {} ({})",
                              header.target_name, header.target_identity, target.name, target.identity),
                  store_path + " and " + target.path,
                  "give the model file the states were extracted with, or extract them again with this one");
  if (header.hidden != target.hidden || header.target_layers != target.num_layers)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the states are {} wide from {} layers, the target has {} and {}",
                              header.hidden, header.target_layers, target.hidden, target.num_layers),
                  store_path, "extract the states again with this target");
  if (!header.last_state_is_pre_norm)
    return Status(StatusCode::kConfig, "the last state was stored after the target's final norm", store_path,
                  "extract the states again: training norms them itself");
  if (header.aux_layers.empty())
    return Status(StatusCode::kConfig, "the store has no captured layers, only the last state", store_path,
                  "extract with --target-layer-ids");
  return {};
}

Status check_any_supervised(const StoreReader& store, const std::vector<std::size_t>& training,
                            const std::string& path) {
  if (store.documents().empty())
    return Status(StatusCode::kInvalidArgument, "the state store has no documents", path,
                  "run eaglet extract on some conversations first");
  if (training.empty())
    return Status(StatusCode::kInvalidArgument, "no document is left to train on: all are held out", path,
                  "extract more conversations, or give --hold-out-every 0");
  for (const std::size_t i : training)
    if (store.documents()[i].supervised_tokens > 0) return {};
  return Status(StatusCode::kInvalidArgument,
                fmt::format("none of the {} training documents has a supervised token", training.size()),
                path, "check the loss_mask of the conversations: it marks what the target wrote itself");
}

Status check_length(const TrainOptions& options, const StoreReader& store,
                    const std::vector<std::size_t>& training) {
  std::int64_t shortest = store.documents()[training.front()].tokens;
  for (const std::size_t i : training) shortest = std::min(shortest, store.documents()[i].tokens);
  if (shortest <= options.max_seq_len) return {};
  return Status(StatusCode::kInvalidArgument,
                fmt::format("a max_seq_len of {} is shorter than every document: the shortest has {} tokens",
                            options.max_seq_len, shortest),
                options.store_path, fmt::format("give --max-seq-len {} or more", shortest));
}

}  // namespace

void split_documents(std::size_t documents, std::int64_t hold_out_every, std::vector<std::size_t>* training,
                     std::vector<std::size_t>* held_out) {
  for (std::size_t i = 0; i < documents; ++i) {
    const bool held = hold_out_every > 0 && i % static_cast<std::size_t>(hold_out_every) == 0;
    (held ? held_out : training)->push_back(i);
  }
}

Result<TrainData> open_train_data(const TrainOptions& options, const TargetFacts& target) {
  TrainData data;
  EAGLET_ASSIGN_OR_RETURN(data.store,
                          options.open_store ? options.open_store() : StoreReader::open(options.store_path));
  EAGLET_RETURN_IF_ERROR(check_target(data.store->header(), options.store_path, target));
  split_documents(data.store->documents().size(), options.hold_out_every, &data.training, &data.held_out);
  EAGLET_RETURN_IF_ERROR(check_any_supervised(*data.store, data.training, options.store_path));
  EAGLET_RETURN_IF_ERROR(check_length(options, *data.store, data.training));
  const bool stream =
      options.states == "stream" || (options.states == "auto" && !options.online &&
                                     states_stay_in_store(data.store->header(), options.max_seq_len));
  // A device widens them; noise is added to fp32.
  const bool as_stored =
      options.device != nullptr && options.noise_std == 0 && data.store->stored_form() != StateForm::kF32;
  data.states = stream ? BatchStates::kInStore : as_stored ? BatchStates::kStored : BatchStates::kLoaded;
  if (stream && options.noise_std > 0)
    return Status(StatusCode::kUsage, "noise is added to states in memory, these are streamed", "--noise-std",
                  "give --state-reading load, or leave --noise-std out");
  PackingOptions packing{options.max_seq_len, options.seed, true};
  EAGLET_ASSIGN_OR_RETURN(data.training_plan, PackPlan::make(*data.store, data.training, packing));
  if (data.held_out.empty()) return data;
  packing.shuffle = false;
  Result<PackPlan> held_out = PackPlan::make(*data.store, data.held_out, packing);
  data.can_validate =
      held_out.ok();  // the lengths are fine, so it fails only when nothing there is supervised
  if (held_out.ok()) data.held_out_plan = std::move(*held_out);
  return data;
}

Result<std::vector<std::int64_t>> count_supervised(const StoreReader& store,
                                                   const std::vector<std::size_t>& documents,
                                                   std::int64_t vocab) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab), 0);
  for (const std::size_t i : documents) {
    if (interrupted())
      return Status(StatusCode::kInterrupted, "stopped while counting tokens; nothing was begun");
    EAGLET_ASSIGN_OR_RETURN(const DocumentStates document, store.read_tokens(i));
    for (std::size_t p = 0; p < document.input_ids.size(); ++p) {
      const std::int32_t id = document.input_ids[p];
      if (id < 0 || id >= vocab)
        return Status(StatusCode::kDataLoss,
                      fmt::format("token id {} is outside the target's vocabulary of {}", id, vocab),
                      "document " + document.id, "the store and the target do not belong together");
      if (document.loss_mask[p] != 0) ++counts[static_cast<std::size_t>(id)];
    }
  }
  return counts;
}

}  // namespace eaglet
