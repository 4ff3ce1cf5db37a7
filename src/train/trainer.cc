#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "base/clock.h"
#include "base/interrupt.h"
#include "ops/adamw.h"
#include "train/checkpoint.h"

namespace eaglet {
namespace {

constexpr std::int64_t kStepsBeforeForecast = 5;
constexpr double kWarmLossShare = 0.6;            // of an even guess: a loaded draft begins below it
constexpr double kSlowDiskBytesPerSecond = 50e6;  // what next_by assumes while saving

DraftInputs inputs_of(const PackedBatch& batch) {
  DraftInputs inputs;
  inputs.rows = batch.rows;
  inputs.input_ids = batch.input_ids.data();
  inputs.document_ids = batch.document_ids.data();
  inputs.position_ids = batch.position_ids.data();
  inputs.loss_mask = batch.loss_mask.data();
  inputs.aux_hidden_states = batch.aux_hidden_states.data();
  inputs.last_hidden_states = batch.last_hidden_states.data();
  return inputs;
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, const TrainData& data, DraftModel& model,
                 const Schedule& schedule, std::int64_t total_steps, OptimizerState optimizer,
                 TrainerState state, RunRecords& records, Progress& progress)
    : options_(options),
      data_(data),
      model_(model),
      schedule_(schedule),
      total_steps_(total_steps),
      optimizer_(std::move(optimizer)),
      state_(std::move(state)),
      records_(records),
      progress_(progress),
      checkpoints_(options.output_dir + "/checkpoints"),
      needed_work_(model.weights().config, static_cast<int>(options.ttt_steps), options.train_head),
      first_step_(state_.step + 1),
      saved_step_(state_.step) {}

Status Trainer::run() {
  records_.set_progress(state_.step, state_.last_loss, 0);
  peak_flops_ = measured_peak_flops();
  progress_.begin("train", static_cast<std::uint64_t>(total_steps_), "steps",
                  static_cast<std::uint64_t>(first_step_));
  if (state_.step >= 0) {  // a signal may have come between a step and its validation
    saved_step_ =
        state_.last_validation.step == state_.step || !due(options_.validate_every_steps) ? state_.step : -1;
    EAGLET_RETURN_IF_ERROR(after_step());
  }
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<BatchLoader> loader,
                          BatchLoader::start(*data_.store, data_.training_plan, options_.max_seq_len,
                                             options_.num_workers, state_.epoch, state_.next_batch));
  while (state_.step + 1 < total_steps_) {
    EAGLET_RETURN_IF_ERROR(one_step(*loader));
    EAGLET_RETURN_IF_ERROR(after_step());
    if (state_.step == first_step_ + kStepsBeforeForecast) forecast();
  }
  EAGLET_RETURN_IF_ERROR(records_.event("end", state_.step, state_.epoch, "done"));
  EAGLET_RETURN_IF_ERROR(records_.status("done", 0));
  progress_.end(
      fmt::format("{} steps, loss {:.4f} to {:.4f}", total_steps_, state_.first_loss, state_.last_loss));
  return {};
}

Status Trainer::one_step(BatchLoader& loader) {
  const double begin = monotonic_seconds(), waited = loader.waited_seconds();
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<PackedBatch> batch, loader.next());
  LogRecord record;
  record.event = "step";
  record.epoch = state_.epoch;
  record.data_wait_seconds = loader.waited_seconds() - waited;
  record.fill_ratio = static_cast<double>(batch->real_tokens) / static_cast<double>(options_.max_seq_len);
  const Result<StepSums> sums = model_.step(inputs_of(*batch), true);
  if (!sums.ok()) return not_finite(sums.status(), *batch);
  EAGLET_RETURN_IF_ERROR(update_weights(*sums, *batch, &record));
  advance();
  record.step = state_.step;
  record.t = wall_seconds();
  record.step_seconds = step_seconds_ = monotonic_seconds() - begin;
  record.tokens_per_second = static_cast<double>(batch->real_tokens) / step_seconds_;
  record.mfu_ratio = share_of_peak(needed_work_.flops(*batch) / step_seconds_);
  seconds_ += step_seconds_;
  tokens_ += batch->real_tokens;
  state_.last_loss = record.total_loss;
  if (state_.step == 0) {
    state_.first_loss = record.total_loss;
    EAGLET_RETURN_IF_ERROR(judge_first_loss(record.loss.front()));
  }
  loader.recycle(std::move(batch));
  return log_step(std::move(record));
}

Status Trainer::update_weights(const StepSums& sums, const PackedBatch& batch, LogRecord* record) {
  const std::int64_t n = model_.trainable_elements();
  const StepMetrics metrics = step_metrics(sums, options_.ttt_step_loss_decay);
  put_metrics(metrics, record);
  record->grad_norm = l2_norm(n, model_.gradients().data());
  if (!std::isfinite(metrics.total_loss) || !std::isfinite(record->grad_norm))
    return not_finite(Status(StatusCode::kNumeric,
                             fmt::format("loss {}, gradient norm {}", metrics.total_loss, record->grad_norm)),
                      batch);
  // torch.nn.utils.clip_grad_norm_
  const double scale = options_.clip > 0 ? std::min(1.0, options_.clip / (record->grad_norm + 1e-6)) : 1.0;
  record->lr = schedule_.rate(state_.step + 1);
  const AdamwOptions adamw_options{options_.beta1, options_.beta2, options_.eps, options_.weight_decay};
  adamw(n, model_.weights().values.data(), model_.gradients().data(), optimizer_.first_moment.data(),
        optimizer_.second_moment.data(), scale, record->lr, ++optimizer_.updates, adamw_options);
  return {};
}

void Trainer::advance() {
  ++state_.step;
  if (++state_.next_batch < state_.batches_per_epoch) return;
  state_.next_batch = 0;
  ++state_.epoch;
}

Status Trainer::log_step(LogRecord record) {
  progress_.update(static_cast<std::uint64_t>(state_.step + 1),
                   fmt::format("loss {:.4f}, length {:.3f}, {:.0f} tokens/s", record.total_loss,
                               record.acceptance_length, record.tokens_per_second));
  records_.set_progress(state_.step, record.total_loss, record.tokens_per_second);
  EAGLET_RETURN_IF_ERROR(records_.status("train", std::max(30.0, 10 * step_seconds_)));
  const bool last = state_.step + 1 == total_steps_;
  if (state_.step % options_.log_every_steps != 0 && !last) return {};
  return records_.step(record);
}

// A step that beats the peak shows that other programs disturbed its measurement: measure again, and claim
// nothing when that does not help.
double Trainer::share_of_peak(double flops_per_second) {
  if (flops_per_second > peak_flops_) peak_flops_ = std::max(peak_flops_, measured_peak_flops());
  const double share = flops_per_second / peak_flops_;
  return share <= 1 ? share : LogRecord::kNone;
}

// every_steps 0 means at each epoch's end. The last step of the run always counts.
bool Trainer::due(std::int64_t every_steps) const {
  if (state_.step + 1 >= total_steps_) return true;
  if (every_steps == 0) return state_.next_batch == 0;
  return state_.step > 0 && state_.step % every_steps == 0;
}

Status Trainer::after_step() {
  if (interrupted()) return stop_for_signal();
  bool best = false;
  if (data_.can_validate && due(options_.validate_every_steps) &&
      state_.last_validation.step != state_.step) {
    const Status status = validate(&best);
    if (status.code() == StatusCode::kInterrupted) return stop_for_signal();
    EAGLET_RETURN_IF_ERROR(status);
  }
  if (saved_step_ == state_.step) return {};
  if (!best && !due(options_.checkpoint_every_steps)) return {};
  return save(best);
}

Result<StepSums> Trainer::held_out_sums() {
  StepSums total;
  PackedBatch batch;
  const std::vector<std::vector<std::size_t>> packs = data_.held_out_plan.epoch(0);
  for (std::size_t i = 0; i < packs.size(); ++i) {
    if (interrupted()) return Status(StatusCode::kInterrupted, "stopped while validating");
    progress_.update(static_cast<std::uint64_t>(state_.step + 1),
                     fmt::format("validating {}/{}", i + 1, packs.size()));
    EAGLET_RETURN_IF_ERROR(records_.status("validate", std::max(30.0, 10 * step_seconds_)));
    EAGLET_RETURN_IF_ERROR(fill_batch(*data_.store, packs[i], options_.max_seq_len, &batch));
    const Result<StepSums> sums = model_.step(inputs_of(batch), false);
    if (!sums.ok()) return not_finite(sums.status(), batch);
    add_sums(*sums, &total);
  }
  return total;
}

Status Trainer::validate(bool* best) {
  EAGLET_ASSIGN_OR_RETURN(const StepSums sums, held_out_sums());
  const StepMetrics metrics = step_metrics(sums, options_.ttt_step_loss_decay);
  state_.last_validation = to_validation(metrics, state_.step);
  *best = state_.best_step < 0 || metrics.acceptance_length > state_.best_acceptance_length;
  if (*best) {
    state_.best_step = state_.step;
    state_.best_acceptance_length = metrics.acceptance_length;
  }
  LogRecord record;
  record.event = "validation";
  record.t = wall_seconds();
  record.step = state_.step;
  record.epoch = state_.epoch;
  put_metrics(metrics, &record);
  progress_.note(fmt::format("held out, after step {}: acceptance length {:.4f}, loss {:.4f}{}", state_.step,
                             metrics.acceptance_length, metrics.total_loss, *best ? " (best so far)" : ""));
  return records_.validation(record);
}

Status Trainer::save(bool best) {
  const auto bytes = static_cast<double>(checkpoint_bytes(model_.weights(), optimizer_));
  EAGLET_RETURN_IF_ERROR(records_.status("checkpoint", 60 + bytes / kSlowDiskBytesPerSecond));
  EAGLET_RETURN_IF_ERROR(save_checkpoint(checkpoints_, state_, model_.weights(), optimizer_,
                                         [this](const std::string& text) { progress_.note(text); }));
  saved_step_ = state_.step;
  EAGLET_RETURN_IF_ERROR(link_checkpoint(checkpoints_, "latest", state_.step));
  if (best || !data_.can_validate) EAGLET_RETURN_IF_ERROR(link_checkpoint(checkpoints_, "best", state_.step));
  EAGLET_RETURN_IF_ERROR(remove_unfinished(checkpoints_));
  EAGLET_RETURN_IF_ERROR(prune_checkpoints(checkpoints_, options_.keep_checkpoints, state_.best_step));
  return records_.event("checkpoint", state_.step, state_.epoch,
                        checkpoints_ + "/" + checkpoint_name(state_.step));
}

Status Trainer::stop_for_signal() {
  const char* name = interrupt_signal() == SIGTERM ? "SIGTERM" : "SIGINT";
  if (saved_step_ != state_.step) EAGLET_RETURN_IF_ERROR(save(false));
  EAGLET_RETURN_IF_ERROR(records_.event("end", state_.step, state_.epoch, std::string("stopped by ") + name));
  EAGLET_RETURN_IF_ERROR(records_.status("interrupted", 0));
  return Status(StatusCode::kInterrupted,
                fmt::format("stopped by {} after step {} of {}; saved as {}", name, state_.step, total_steps_,
                            checkpoint_name(state_.step)),
                checkpoints_, "run the same command again to go on from there");
}

Status Trainer::not_finite(const Status& status, const PackedBatch& batch) {
  if (status.code() != StatusCode::kNumeric) return status;
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> ids;
  for (const std::size_t i : batch.documents)
    if (ids.size() < kNamed) ids.push_back(data_.store->documents()[i].id);
  if (batch.documents.size() > kNamed)
    ids.push_back(fmt::format("and {} more", batch.documents.size() - kNamed));
  const std::string kept = saved_step_ >= 0 ? "the last good checkpoint is " + checkpoint_name(saved_step_)
                                            : std::string("no checkpoint was saved yet");
  const Status failure(
      StatusCode::kNumeric,
      fmt::format("not finite at step {} ({}); {}", state_.step + 1, status.what(), kept),
      fmt::format("documents {}", fmt::join(ids, ", ")),
      "check the states with eaglet inspect --verify; if they are whole, use a lower --lr or a smaller "
      "--clip");
  (void)records_.event("warning", state_.step + 1, state_.epoch, failure.what() + ", " + failure.where());
  return failure;
}

// A guess that spreads evenly costs ln(Vd). A new draft whose head is the target's may well begin above it;
// one that was loaded must begin below, or its weights did not arrive.
Status Trainer::judge_first_loss(double loss) {
  const double even_guess = std::log(static_cast<double>(model_.weights().config.draft_vocab));
  const std::string fact =
      fmt::format("first loss {:.3f} at depth 0; an even guess would cost {:.3f}", loss, even_guess);
  if (options_.from.empty() || loss < kWarmLossShare * even_guess) {
    progress_.note(fact);
    return {};
  }
  const std::string warning = fact + ": the draft given with --from does not predict this target's states";
  progress_.note("warning: " + warning);
  return records_.event("warning", state_.step, state_.epoch, warning);
}

void Trainer::forecast() {
  const double per_step = seconds_ / static_cast<double>(state_.step + 1 - first_step_);
  const double left = per_step * static_cast<double>(total_steps_ - state_.step - 1);
  progress_.note(fmt::format("about {} to go ({:.2f} s a step, {:.0f} tokens/s)", human_duration(left),
                             per_step, static_cast<double>(tokens_) / seconds_));
}

}  // namespace eaglet
