#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "base/clock.h"
#include "base/interrupt.h"
#include "batch/store_rows.h"
#include "train/batch_inputs.h"
#include "train/checkpoint.h"
#include "train/device_facts.h"
#include "train/needed_work.h"
#include "train/not_finite.h"
#include "train/rank_agreement.h"
#include "train/train_settings.h"

namespace eaglet {
namespace {

constexpr std::int64_t kStepsBeforeForecast = 5;
constexpr std::int64_t kFreshStepJudged = 20;     // a new draft may begin far above an even guess
constexpr double kWarmLossShare = 0.6;            // of an even guess: a loaded draft begins below it
constexpr std::int64_t kMostSkippedInARow = 10;   // then it is not a bad document any more
constexpr double kSlowDiskBytesPerSecond = 50e6;  // what next_by assumes while saving

std::vector<std::pair<std::string, double>> by_name(const OpTimes& times) {
  std::vector<std::pair<std::string, double>> seconds;
  for (std::size_t i = 0; i < kOpGroups; ++i)
    if (times.seconds[i] > 0) seconds.emplace_back(op_group_name(static_cast<OpGroup>(i)), times.seconds[i]);
  return seconds;
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, const TrainData& data, DraftModel& model, Optimizer& optimizer,
                 const Schedule& schedule, std::int64_t total_steps, TrainerState state, RunRecords& records,
                 Comm& comm, Progress& progress)
    : options_(options),
      data_(data),
      model_(model),
      optimizer_(optimizer),
      schedule_(schedule),
      total_steps_(total_steps),
      state_(std::move(state)),
      records_(records),
      comm_(comm),
      progress_(progress),
      checkpoints_(options.output_dir + "/checkpoints"),
      begin_seconds_(monotonic_seconds()),
      max_seconds_(seconds_of(options.max_time).value_or(0)),
      first_step_(state_.step + 1),
      saved_step_(state_.step) {}

Status Trainer::run() {
  records_.set_progress(state_.step, state_.last_loss, 0);
  peak_flops_ = peak_flops();
  progress_.begin("train", static_cast<std::uint64_t>(total_steps_), "steps",
                  static_cast<std::uint64_t>(first_step_));
  if (state_.step >= 0) {  // a signal may have come between a step and its validation
    saved_step_ = state_.last_validation.step == state_.step || !is_due(options_.validate_every_steps)
                      ? state_.step
                      : -1;
    EAGLET_RETURN_IF_ERROR(look_around());
    EAGLET_RETURN_IF_ERROR(after_step());
  }
  UpdateStep update(options_, data_, model_, optimizer_, schedule_, comm_);
  EAGLET_RETURN_IF_ERROR(update.start(state_));
  while (!ended_ && state_.step + 1 < total_steps_) {
    EAGLET_RETURN_IF_ERROR(one_step(update));
    EAGLET_RETURN_IF_ERROR(after_step());
    if (state_.step == first_step_ + kStepsBeforeForecast) forecast();
  }
  if (!ended_) EAGLET_RETURN_IF_ERROR(records_.event("end", state_.step, state_.epoch, "done"));
  EAGLET_RETURN_IF_ERROR(records_.status("done", 0));
  if (comm_.ranks() > 1)
    progress_.note(fmt::format("{} ranks: {:.1f} % of the time went by waiting for other ranks",
                               comm_.ranks(), 100 * rank_wait_share()));
  progress_.end(
      fmt::format("{} steps, loss {:.4f} to {:.4f}", state_.step + 1, state_.first_loss, state_.last_loss));
  return {};
}

Status Trainer::one_step(UpdateStep& update) {
  const double begin = monotonic_seconds();
  EAGLET_ASSIGN_OR_RETURN(const UpdateResult result, update.make(state_, wishes()));
  facts_ = result.facts;
  if (!result.numeric.ok()) EAGLET_RETURN_IF_ERROR(skip_or_stop(result.numeric));
  LogRecord record;
  record.event = "step";
  record.epoch = state_.epoch;
  const auto tokens = static_cast<std::int64_t>(result.facts.tokens);
  state_.advance(result.batches, tokens);
  record.step = state_.step;
  record.t = wall_seconds();
  put_metrics(result.metrics, &record);
  record.lr = result.lr;
  record.grad_norm = result.grad_norm;
  record.data_wait_seconds = result.data_wait_seconds;
  record.fill_ratio = result.facts.tokens / static_cast<double>(result.batches * options_.max_seq_len);
  record.step_seconds = step_seconds_ = monotonic_seconds() - begin;
  record.tokens_per_second = result.facts.tokens / step_seconds_;
  if (state_.tokens >= 0) record.tokens_total = static_cast<double>(state_.tokens);
  if (result.batches_here > 0) record.mfu_ratio = share_of_peak(result.needed_flops_here / step_seconds_);
  if (result.device_times) {
    record.device_seconds = by_name(*result.device_times);
    records_.set_device_seconds(record.device_seconds);
  }
  seconds_ += step_seconds_;
  rank_wait_seconds_ += result.rank_wait_seconds;
  tokens_ += tokens;
  needed_flops_ += result.facts.needed_flops;
  if (result.numeric.ok()) {
    skipped_in_a_row_ = 0;
    state_.last_loss = record.total_loss;
    if (state_.step == 0) state_.first_loss = record.total_loss;
    EAGLET_RETURN_IF_ERROR(judge_loss(record.loss.front()));
  }
  return log_step(std::move(record));
}

// Ok: the update is left out and counted; it has a step's number and its rate, but changed nothing.
Status Trainer::skip_or_stop(const Status& numeric) {
  const bool skip = options_.on_not_finite == "skip" && skipped_in_a_row_ < kMostSkippedInARow;
  const std::string what = fmt::format("not finite at step {}: {}", state_.step + 1, numeric.what());
  if (skip) {
    ++skipped_in_a_row_;
    ++state_.skipped_updates;
    const std::string text = fmt::format("{} ({}); the update is left out, {} so far", what, numeric.where(),
                                         state_.skipped_updates);
    progress_.note("warning: " + text);
    return records_.event("warning", state_.step + 1, state_.epoch, text);
  }
  const std::string often =
      skipped_in_a_row_ > 0 ? fmt::format(" ({} updates in a row)", skipped_in_a_row_ + 1) : std::string();
  (void)records_.event("warning", state_.step + 1, state_.epoch, what + ", " + numeric.where());
  return Status(
      StatusCode::kNumeric, what + often + "; " + last_good(), numeric.where(),
      "check the states with eaglet inspect --verify; if they are whole, use a lower --lr or a smaller "
      "--clip, or leave such updates out with --on-not-finite skip");
}

std::string Trainer::last_good() const {
  if (saved_step_ < 0) return "no checkpoint was saved yet";
  return "the last good checkpoint is " + checkpoint_name(saved_step_);
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

// Of a processor it is measured here; of a device it is what bf16 products of its kind are known to reach, or
// nothing.
double Trainer::peak_flops() const {
  if (options_.device == nullptr) return measured_peak_flops();
  const DeviceFacts* facts = facts_of_driver_name(options_.device->name());
  return facts != nullptr ? facts->gemm_flops : 0;
}

// A step that beats the peak shows that other programs disturbed its measurement: measure again, and claim
// nothing when that does not help.
double Trainer::share_of_peak(double flops_per_second) {
  if (flops_per_second > peak_flops_) peak_flops_ = std::max(peak_flops_, peak_flops());
  if (peak_flops_ == 0) return LogRecord::kNone;
  const double share = flops_per_second / peak_flops_;
  return share <= 1 ? share : LogRecord::kNone;
}

// every_steps 0 means at each epoch's end. The last step of the run always counts.
bool Trainer::is_due(std::int64_t every_steps) const {
  if (state_.step + 1 >= total_steps_) return true;
  if (every_steps == 0) return state_.next_batch == 0;
  return state_.step > 0 && state_.step % every_steps == 0;
}

// What this process was asked for since the last update. With several ranks a wish of one becomes all ranks'
// decision in the same step.
RankFacts Trainer::wishes() const {
  RankFacts facts;
  facts.sigint = interrupt_signal() == SIGINT ? 1 : 0;
  facts.sigterm = interrupted() && interrupt_signal() != SIGINT ? 1 : 0;
  facts.save = take_save_request() ? 1 : 0;
  facts.time_up = max_seconds_ > 0 && monotonic_seconds() - begin_seconds_ >= max_seconds_ ? 1 : 0;
  return facts;
}

Status Trainer::look_around() {
  facts_ = wishes();
  return exchange(comm_, static_cast<int>(options_.ttt_steps), &facts_);
}

Status Trainer::after_step() {
  if (comm_.ranks() == 1) {  // the newest wishes; with ranks only those of the last update are known to all
    const RankFacts now = wishes();
    facts_.sigint = now.sigint;
    facts_.sigterm = now.sigterm;
    facts_.save += now.save;
    facts_.time_up = now.time_up;
  }
  if (signalled()) return stop_for_signal();
  EAGLET_RETURN_IF_ERROR(validate_and_save());
  if (ended_ || state_.step + 1 >= total_steps_) return {};
  if (options_.early_stop_patience > 0 && state_.stale_validations >= options_.early_stop_patience)
    return end_early(fmt::format("{} validations without a better acceptance length than {:.4f} of step {}",
                                 state_.stale_validations, state_.best_acceptance_length, state_.best_step));
  if (facts_.time_up > 0) return end_early("--max-time " + options_.max_time + " is over");
  if (facts_.save == 0) return {};
  facts_.save = 0;
  progress_.note(fmt::format("SIGUSR1: saving after step {}", state_.step));
  return saved_step_ == state_.step ? Status() : save(false);
}

Status Trainer::validate_and_save() {
  const UntimedOps untimed(options_.device);
  bool best = false;
  if (data_.can_validate && is_due(options_.validate_every_steps) &&
      state_.last_validation.step != state_.step) {
    const Status status = validate(&best);
    if (status.code() == StatusCode::kInterrupted) {
      ended_ = true;
      return stop_for_signal();
    }
    EAGLET_RETURN_IF_ERROR(status);
  }
  if (saved_step_ == state_.step) return {};
  if (!best && !is_due(options_.checkpoint_every_steps)) return {};
  return save(best);
}

// Pack i of the held-out documents is rank (i mod ranks)'s.
Result<RankFacts> Trainer::held_out_facts() {
  RankFacts facts;
  facts.sums.depth.resize(static_cast<std::size_t>(options_.ttt_steps));
  PackedBatch batch;
  StoreRows store_rows(*data_.store);
  const std::vector<std::vector<std::size_t>> packs = data_.held_out_plan.epoch(0);
  std::string bad;
  const auto first = static_cast<std::size_t>(comm_.rank()), ranks = static_cast<std::size_t>(comm_.ranks());
  for (std::size_t i = first; i < packs.size() && !interrupted(); i += ranks) {
    progress_.update(static_cast<std::uint64_t>(state_.step + 1),
                     fmt::format("validating {}/{}", i + 1, packs.size()));
    EAGLET_RETURN_IF_ERROR(records_.status("validate", std::max(30.0, 10 * step_seconds_)));
    EAGLET_RETURN_IF_ERROR(fill_batch(*data_.store, packs[i], options_.max_seq_len, &batch, data_.states));
    store_rows.use(batch);
    const Result<StepSums> sums = model_.step(inputs_of(batch, &store_rows), false);
    if (sums.ok()) {
      add_sums(*sums, &facts.sums);
      continue;
    }
    if (sums.status().code() != StatusCode::kNumeric) return sums.status();
    facts.not_finite = 1;
    bad = document_names(*data_.store, packs[i]);
  }
  const RankFacts asked = wishes();
  facts.sigint = asked.sigint;
  facts.sigterm = asked.sigterm;
  facts.save = asked.save;
  EAGLET_RETURN_IF_ERROR(exchange(comm_, static_cast<int>(options_.ttt_steps), &facts));
  if (facts.not_finite == 0) return facts;
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> documents, gather_texts(comm_, bad));
  return Status(
      StatusCode::kNumeric, fmt::format("a held-out loss after step {} is not finite", state_.step),
      fmt::format("documents {}", fmt::join(documents, " ")),
      "check the states with eaglet inspect --verify; if they are whole, the weights have run away: "
      "use a lower --lr");
}

Status Trainer::validate(bool* best) {
  EAGLET_ASSIGN_OR_RETURN(const RankFacts facts, held_out_facts());
  facts_.sigint += facts.sigint;
  facts_.sigterm += facts.sigterm;
  facts_.save += facts.save;
  if (signalled()) return Status(StatusCode::kInterrupted, "stopped while validating");
  const StepMetrics metrics = step_metrics(facts.sums, ttt_options(options_, ComputeType::kF32));
  state_.last_validation = to_validation(metrics, state_.step);
  *best = state_.best_step < 0 || metrics.acceptance_length > state_.best_acceptance_length;
  state_.stale_validations = *best ? 0 : state_.stale_validations + 1;
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
  EAGLET_RETURN_IF_ERROR(model_.fetch_weights());
  EAGLET_ASSIGN_OR_RETURN(const int other, rank_with_other_weights(comm_, model_.weights()));
  if (other > 0) {
    const std::string text = fmt::format(
        "weights of rank {} are not those of rank 0 after step {}: nothing is saved", other, state_.step);
    (void)records_.event("warning", state_.step, state_.epoch, text);
    return Status(
        StatusCode::kNumeric, text + "; " + last_good(), checkpoints_,
        "check memory, processor and libraries of that rank's machine, then run the same command again");
  }
  // The rate of the last update may have thrown them out; the checkpoints there are must stay the newest good
  // ones.
  if (const std::string bad = tensors_not_finite(model_.weights(), nullptr); !bad.empty())
    return Status(
        StatusCode::kNumeric,
        fmt::format("after step {} {} are not finite: nothing is saved; {}", state_.step, bad, last_good()),
        checkpoints_, "use a lower --lr or a smaller --clip");
  saved_step_ = state_.step;
  // Sharded moments are written by rank 0, the others send theirs.
  if (!leads()) return options_.shard_optimizer ? optimizer_.write({}, comm_) : Status();
  const auto bytes = static_cast<double>(checkpoint_bytes(model_.weights(), optimizer_.state_bytes()));
  const Busy busy(comm_);  // the others wait for it in their next update
  EAGLET_RETURN_IF_ERROR(records_.status("checkpoint", 60 + bytes / kSlowDiskBytesPerSecond));
  EAGLET_RETURN_IF_ERROR(save_checkpoint(checkpoints_, state_, model_.weights(), optimizer_, comm_,
                                         [this](const std::string& text) { progress_.note(text); }));
  EAGLET_RETURN_IF_ERROR(link_checkpoint(checkpoints_, "latest", state_.step));
  if (best || !data_.can_validate) EAGLET_RETURN_IF_ERROR(link_checkpoint(checkpoints_, "best", state_.step));
  EAGLET_RETURN_IF_ERROR(remove_unfinished(checkpoints_));
  EAGLET_RETURN_IF_ERROR(prune_checkpoints(checkpoints_, options_.keep_checkpoints, state_.best_step));
  return records_.event("checkpoint", state_.step, state_.epoch,
                        checkpoints_ + "/" + checkpoint_name(state_.step));
}

Status Trainer::stop_for_signal() {
  const char* name = facts_.sigterm > 0 ? "SIGTERM" : "SIGINT";
  if (saved_step_ != state_.step) EAGLET_RETURN_IF_ERROR(save(false));
  EAGLET_RETURN_IF_ERROR(records_.event("end", state_.step, state_.epoch, std::string("stopped by ") + name));
  EAGLET_RETURN_IF_ERROR(records_.status("interrupted", 0));
  return Status(StatusCode::kInterrupted,
                fmt::format("stopped by {} after step {} of {}; saved as {}", name, state_.step, total_steps_,
                            checkpoint_name(state_.step)),
                checkpoints_, "run the same command again to go on from there");
}

Status Trainer::end_early(const std::string& why) {
  ended_ = true;
  if (saved_step_ != state_.step) EAGLET_RETURN_IF_ERROR(save(false));
  progress_.note(fmt::format("ended after step {} of {}: {}", state_.step, total_steps_, why));
  return records_.event("end", state_.step, state_.epoch, why);
}

// A guess that spreads evenly costs ln(Vd). A new draft whose head is the target's may well begin at two or
// three times that, and is judged once it has learnt a little; one that was loaded must begin well below, or
// its weights did not arrive.
Status Trainer::judge_loss(double loss) {
  const bool warm = !options_.from.empty();
  if (state_.step != 0 && (warm || state_.step != kFreshStepJudged)) return {};
  const double even_guess = std::log(static_cast<double>(model_.weights().config.draft_vocab));
  const std::string fact =
      fmt::format("{} {:.3f} at depth 0; an even guess would cost {:.3f}",
                  state_.step == 0 ? "first loss" : "loss after 20 steps", loss, even_guess);
  std::string warning;
  if (warm && loss >= kWarmLossShare * even_guess)
    warning = fact + ": the draft given with --from does not predict this target's states";
  if (!warm && state_.step == kFreshStepJudged && loss >= even_guess)
    warning = fact + ": it is not learning yet; look at --lr, the warm-up and the layers of the states";
  if (warning.empty()) {
    progress_.note(fact);
    return {};
  }
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
