#include "train/update_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "ops/adamw.h"
#include "ops/rows.h"
#include "train/batch_inputs.h"
#include "train/not_finite.h"
#include "train/state_noise.h"
#include "train/train_settings.h"

namespace eaglet {

UpdateStep::UpdateStep(const TrainOptions& options, const TrainData& data, DraftModel& model,
                       Optimizer& optimizer, const Schedule& schedule, Comm& comm)
    : options_(options),
      data_(data),
      model_(model),
      optimizer_(optimizer),
      schedule_(schedule),
      comm_(comm),
      needed_work_(model.weights().config, static_cast<int>(options.ttt_steps), options.train_head),
      store_rows_{StoreRows(*data.store), StoreRows(*data.store)} {
  if (comm_.ranks() > 1)
    reducer_ =
        make_gradient_reducer(comm_, options_.device, model_.gradients().data(), model_.trainable_elements());
}

UpdateStep::~UpdateStep() {
  if (options_.device != nullptr) options_.device->time_ops(false);
}

Status UpdateStep::start(const TrainerState& state) {
  if (options_.device != nullptr) {
    options_.device->take_op_times();  // of others
    times_ops_ = (state.step + 1) % options_.log_every_steps == 0;
    options_.device->time_ops(times_ops_);
  }
  if (batches_per_update(options_) > 1) {
    EAGLET_ASSIGN_OR_RETURN(counted_rows_,
                            CountedRows::make(*data_.store, data_.training, options_.max_seq_len,
                                              static_cast<int>(options_.ttt_steps)));
    model_.sharing().counted.assign(static_cast<std::size_t>(options_.ttt_steps), 0.0);
  }
  if (comm_.rank() >= data_.training_plan.report().batches) return {};  // more ranks than batches
  EAGLET_ASSIGN_OR_RETURN(loader_, BatchLoader::start(*data_.store, data_.training_plan, options_.max_seq_len,
                                                      options_.num_workers, state.epoch, state.next_batch,
                                                      {comm_.rank(), comm_.ranks()}, data_.states));
  return {};
}

UpdateStep::Group UpdateStep::group_after(const TrainerState& state) const {
  return {state.next_batch,
          std::min(batches_per_update(options_), state.batches_per_epoch - state.next_batch)};
}

void UpdateStep::count_group(std::int64_t epoch, const Group& group) {
  if (epoch != epoch_of_order_) {
    order_ = data_.training_plan.epoch(epoch);
    epoch_of_order_ = epoch;
  }
  std::vector<double>& counted = model_.sharing().counted;
  std::fill(counted.begin(), counted.end(), 0.0);
  for (std::int64_t i = group.first; i < group.first + group.size; ++i)
    counted_rows_.add(order_[static_cast<std::size_t>(i)], &counted);
}

Result<UpdateResult> UpdateStep::make(const TrainerState& state, const RankFacts& flags) {
  UpdateResult result;
  result.facts = flags;
  result.facts.sums.depth.assign(static_cast<std::size_t>(options_.ttt_steps), DepthSums{});
  const Group group = group_after(state);
  result.batches = group.size;
  documents_.clear();
  not_finite_.clear();
  if (batches_per_update(options_) > 1) count_group(state.epoch, group);
  EAGLET_RETURN_IF_ERROR(run_batches(state, group, &result));
  EAGLET_RETURN_IF_ERROR(reduce(&result));
  EAGLET_RETURN_IF_ERROR(apply(state, &result));
  return result;
}

Status UpdateStep::run_batches(const TrainerState& state, const Group& group, UpdateResult* result) {
  const double waited = data_wait();
  const std::int64_t end = group.first + group.size, ranks = comm_.ranks();
  for (std::int64_t number = group.first + comm_.rank(); number < end; number += ranks)
    EAGLET_RETURN_IF_ERROR(
        run_batch(state, number, number < group.first + ranks, number + ranks >= end, result));
  result->data_wait_seconds = data_wait() - waited;
  return {};
}

double UpdateStep::data_wait() const {
  const double reading = options_.device != nullptr
                             ? model_.starved_seconds()
                             : store_rows_[0].waited_seconds() + store_rows_[1].waited_seconds();
  return (loader_ ? loader_->waited_seconds() : 0) - hidden_seconds_ + reading;
}

Result<std::unique_ptr<PackedBatch>> UpdateStep::next_batch() {
  ++turn_;
  if (!next_) return loader_->next();
  Result<std::unique_ptr<PackedBatch>> batch = std::move(*next_);
  next_.reset();
  return batch;
}

// The states of the batch after `number` go to the device while it is at work on this one's gradients. A
// batch that cannot be had is told when its turn comes. Noise is added to a batch when its turn comes.
void UpdateStep::look_ahead(const TrainerState& state, std::int64_t number) {
  if (options_.device == nullptr || options_.noise_std > 0) return;
  if (!next_) {
    const double waited = loader_->waited_seconds();
    next_.emplace(loader_->next());
    if (!options_.device->idle()) hidden_seconds_ += loader_->waited_seconds() - waited;
  }
  if (!next_->ok()) return;
  std::int64_t epoch = state.epoch, next = number + comm_.ranks();
  if (next >= state.batches_per_epoch) {
    ++epoch;
    next = comm_.rank();
  }
  StoreRows& rows = store_rows_[(turn_ + 1) % 2];
  rows.use(***next_);
  model_.look_ahead(inputs_of(***next_, &rows), seed_of_batch(options_.seed, epoch, next));
}

Status UpdateStep::run_batch(const TrainerState& state, std::int64_t number, bool first, bool last,
                             UpdateResult* result) {
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<PackedBatch> batch, next_batch());
  add_state_noise(options_.noise_std, seed_of_batch(options_.seed, state.epoch, number), batch.get());
  GradientSharing& sharing = model_.sharing();
  sharing.accumulate = !first;
  sharing.on_final = nullptr;
  if (last && reducer_) {
    reducer_->begin();
    sharing.on_final = [this](std::int64_t first_final) { reducer_->ready(first_final); };
  }
  model_.set_sampling_seed(seed_of_batch(options_.seed, state.epoch, number));
  ++result->batches_here;
  result->tokens_here += batch->real_tokens;
  result->needed_flops_here += needed_work_.flops(inputs_of(*batch, nullptr), options_.row_sampling,
                                                  seed_of_batch(options_.seed, state.epoch, number));
  documents_.insert(documents_.end(), batch->documents.begin(), batch->documents.end());
  rows_of_batch().use(*batch);
  const Result<StepSums> sums = model_.step(inputs_of(*batch, &rows_of_batch()), true);
  if (sums.ok()) {
    add_sums(*sums, &result->facts.sums);
  } else if (sums.status().code() == StatusCode::kNumeric) {
    result->facts.not_finite = 1;
    const std::vector<std::size_t> bad = documents_not_finite(*batch);
    if (!bad.empty()) not_finite_ = "the states of " + document_names(*data_.store, bad);
  } else {
    return sums.status();
  }
  look_ahead(state, number);
  loader_->recycle(std::move(batch));
  return {};
}

Status UpdateStep::reduce(UpdateResult* result) {
  result->facts.tokens = static_cast<double>(result->tokens_here);
  result->facts.needed_flops = result->needed_flops_here;
  if (!reducer_) return {};
  if (result->batches_here == 0) {
    reducer_->begin();
    zero_rows(model_.trainable_elements(), 1, model_.gradients().data());
  }
  reducer_->ready(0);  // without a batch, or after a loss that stopped the step before backward
  const double waited = reducer_->waited_seconds();
  EAGLET_RETURN_IF_ERROR(reducer_->finish());
  const double since = monotonic_seconds();
  EAGLET_RETURN_IF_ERROR(exchange(comm_, static_cast<int>(options_.ttt_steps), &result->facts));
  result->rank_wait_seconds = reducer_->waited_seconds() - waited + monotonic_seconds() - since;
  return {};
}

Status UpdateStep::apply(const TrainerState& state, UpdateResult* result) {
  const std::int64_t n = model_.trainable_elements();
  result->metrics = step_metrics(result->facts.sums, ttt_options(options_, ComputeType::kF32));
  result->lr = schedule_.rate(state.step + 1);
  result->grad_norm = l2_norm(n, model_.gradients().data());  // waits for a device: the log shows it
  if (options_.device != nullptr) {
    take_times(state, result);
    EAGLET_RETURN_IF_ERROR(options_.device->check());
  }
  if (result->facts.not_finite > 0 || !std::isfinite(result->metrics.total_loss) ||
      !std::isfinite(result->grad_norm))
    return tell_not_finite(result);
  // torch.nn.utils.clip_grad_norm_
  const double scale = options_.clip > 0 ? std::min(1.0, options_.clip / (result->grad_norm + 1e-6)) : 1.0;
  optimizer_.update(model_.parameters(), model_.gradients().data(), scale, result->lr);
  if (options_.shard_optimizer) EAGLET_RETURN_IF_ERROR(optimizer_.share_weights(comm_, model_.parameters()));
  return {};
}

// All that was measured is done: the norm was waited for. So the times of an update are those of its batches
// and of the update of weights before it, which ran until then. Whether the next one is measured is said
// here, before its first op.
void UpdateStep::take_times(const TrainerState& state, UpdateResult* result) {
  constexpr double kSecondsBetween = 1;  // two events an op: about a thousandth of a step, once a second
  const OpTimes times = options_.device->take_op_times();
  const double now = monotonic_seconds();
  if (times_ops_) {
    result->device_times = times;
    last_timed_ = now;
  }
  const std::int64_t next = state.step + 2;  // this update is state.step + 1
  times_ops_ = next % options_.log_every_steps == 0 && now - last_timed_ >= kSecondsBetween;
  options_.device->time_ops(times_ops_);
}

// Every rank comes here in the same update, because loss and gradients are sums over all.
Status UpdateStep::tell_not_finite(UpdateResult* result) {
  const bool own_loss = result->facts.not_finite > 0;
  if (own_loss) {
    result->grad_norm = NAN;
    result->metrics.total_loss = NAN;
  }
  EAGLET_RETURN_IF_ERROR(model_.fetch_weights());
  const std::vector<float> gradients = own_loss ? std::vector<float>() : model_.gradients().to_host();
  const std::string tensors = tensors_not_finite(model_.weights(), own_loss ? nullptr : gradients.data());
  if (!tensors.empty()) not_finite_ += (not_finite_.empty() ? "" : "; ") + tensors;
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, gather_texts(comm_, not_finite_));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> documents,
                          gather_texts(comm_, document_names(*data_.store, documents_)));
  std::string what, where;
  for (const std::string& text : names)
    if (!text.empty() && what.find(text) == std::string::npos) what += (what.empty() ? "" : "; ") + text;
  for (const std::string& text : documents)
    if (!text.empty()) where += (where.empty() ? "" : ", ") + text;
  result->numeric = Status(StatusCode::kNumeric,
                           fmt::format("{}{}",
                                       own_loss ? "the loss"
                                                : fmt::format("loss {}, gradient norm {}",
                                                              result->metrics.total_loss, result->grad_norm),
                                       what.empty() ? std::string() : "; not finite: " + what),
                           "documents " + where);
  return {};
}

}  // namespace eaglet
