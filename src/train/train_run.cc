#include "train/train_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "comm/comm.h"
#include "device/threads.h"
#include "draft/draft_model.h"
#include "train/checkpoint.h"
#include "train/draft_setup.h"
#include "train/optimizer.h"
#include "train/rank_agreement.h"
#include "train/resume.h"
#include "train/run_records.h"
#include "train/run_start.h"
#include "train/train_data.h"
#include "train/train_plan.h"
#include "train/train_settings.h"
#include "train/trainer.h"
#include "train/update_step.h"

namespace eaglet {
namespace {

// One run from prepared data to its report. The members are filled in the order they stand here.
class Run {
 public:
  Run(const TrainOptions& options, const TargetFacts& target, const TargetWeights& weights,
      Progress& progress)
      : alone_(one_rank()),
        comm_(options.comm != nullptr ? *options.comm : *alone_),
        options_(options),
        target_(target),
        weights_(weights),
        progress_(progress) {
    const std::uint64_t now = resident_bytes(),
                        target_bytes = 4 * (weights.embed_tokens.size() + weights.lm_head.size());
    program_bytes_ = now > target_bytes ? now - target_bytes : 0;
  }

  Result<TrainReport> go();
  /// A plan with the time: makes `steps` updates in memory and writes nothing.
  Result<TrainPlan> measure(std::int64_t steps);

 private:
  Status prepare();
  Status check_device();
  Status choose_steps();
  Status start();
  Status choose_compute_type();
  Status compare_settings();
  Status make_model();
  Status plan();
  Status write_config();
  Status open_records();
  Status refresh_links() const;
  void describe() const;
  TrainReport report() const;
  std::int64_t total_params() const;
  bool finished() const;
  bool leads() const { return comm_.rank() == 0; }

  const std::unique_ptr<Comm> alone_;
  Comm& comm_;
  const TrainOptions& options_;
  const TargetFacts& target_;
  const TargetWeights& weights_;
  Progress& progress_;
  TrainData data_;
  ResumePoint resume_;
  EffectiveSettings effective_;
  RunStart start_;
  std::unique_ptr<DraftModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  TrainPlan plan_;
  std::uint64_t program_bytes_ = 0;  // before anything of the run
  std::string run_id_;
  std::optional<RunRecords> records_;
  double seconds_ = 0, needed_flops_ = 0, rank_wait_share_ = 0;
  std::int64_t tokens_ = 0;
};

Status Run::prepare() {
  set_num_threads(threads_of_rank(options_.threads, comm_.ranks_here()));
  effective_.threads = num_threads();
  EAGLET_RETURN_IF_ERROR(check_device());
  EAGLET_ASSIGN_OR_RETURN(data_, open_train_data(options_, target_));
  effective_.target_identity = target_.identity;
  effective_.store_fingerprint = store_fingerprint(*data_.store);
  EAGLET_RETURN_IF_ERROR(choose_steps());
  EAGLET_ASSIGN_OR_RETURN(resume_, agree_on_checkpoint(comm_, options_, progress_));
  EAGLET_RETURN_IF_ERROR(start());
  effective_.draft_vocab_size = start_.draft.config.draft_vocab;
  effective_.intermediate_size = start_.draft.config.intermediate;
  EAGLET_RETURN_IF_ERROR(choose_compute_type());
  EAGLET_RETURN_IF_ERROR(compare_settings());
  EAGLET_RETURN_IF_ERROR(check_same_on_all_ranks(comm_, start_.state, start_.draft, options_.output_dir));
  return leads() ? set_newer_aside(options_.output_dir, resume_, progress_) : Status();
}

Status Run::check_device() {
  if (options_.device == nullptr) return {};
  effective_.device = options_.device->name();
  if (comm_.ranks() == 1) return {};
  if (comm_.device_ranks() != nullptr) return {};
  return Status(StatusCode::kInternal, "several ranks with devices that are not connected", "--device");
}

Status Run::choose_steps() {
  EAGLET_ASSIGN_OR_RETURN(const StepCounts counts,
                          count_steps(options_, data_.training_plan.report().batches));
  effective_.batches_per_update = counts.batches_per_update;
  effective_.total_steps = counts.total_steps;
  effective_.schedule = counts.schedule;
  return {};
}

Status Run::start() {
  const RunStartMaker maker{options_, target_, weights_, data_, progress_};
  EAGLET_ASSIGN_OR_RETURN(
      start_, resume_.checkpoint ? maker.from_checkpoint(*resume_.checkpoint, effective_.batches_per_update)
                                 : maker.anew());
  return {};
}

// A run goes on in the type it was begun in; else a device's is bf16, and of processors rank 0 measures for
// all.
Status Run::choose_compute_type() {
  const auto before = start_.has_settings && start_.state.settings.is_object()
                          ? start_.state.settings.find("compute_type")
                          : start_.state.settings.end();
  const bool known = start_.has_settings && before != start_.state.settings.end() && before->is_string();
  const std::string name = options_.compute_type != "auto" ? options_.compute_type
                           : known                         ? before->get<std::string>()
                           : start_.has_settings           ? "f32"
                                                           : "";
  if (name.empty()) {
    if (options_.device != nullptr) {
      effective_.compute_type = ComputeType::kBf16;
      return {};
    }
    if (leads()) effective_.compute_type = fastest_compute_type();
    return comm_.broadcast(sizeof effective_.compute_type, &effective_.compute_type, 0);
  }
  EAGLET_ASSIGN_OR_RETURN(effective_.compute_type, parse_compute_type(name));
  return {};
}

Status Run::compare_settings() {
  const Json now = fixed_settings(options_, effective_);
  if (start_.has_settings) {
    // 0 is the target's own size, or with --from that of the draft the run began with.
    Json asked = now;
    if (options_.draft_vocab_size > 0 || (options_.from.empty() && options_.vocab_map.empty()))
      asked["draft_vocab_size"] = options_.draft_vocab_size > 0 ? options_.draft_vocab_size : target_.vocab;
    if (options_.intermediate_size > 0 || options_.from.empty())
      asked["intermediate_size"] =
          options_.intermediate_size > 0 ? options_.intermediate_size : target_.intermediate;
    if (Status status = check_same_settings(start_.state.settings, asked); !status.ok())
      return status.at(resume_.checkpoint->path);
    if (start_.state.batches_per_epoch != data_.training_plan.report().batches)
      return Status(StatusCode::kConfig,
                    fmt::format("the store packs into {} batches, it was {} when this run began",
                                data_.training_plan.report().batches, start_.state.batches_per_epoch),
                    options_.store_path, "go on with the store the run was begun with");
  }
  start_.state.settings = now;
  if (start_.has_settings && start_.state.threads != effective_.threads)
    progress_.note(
        fmt::format("warning: begun with {} threads, now {}: the results agree to rounding, not bit for bit",
                    start_.state.threads, effective_.threads));
  start_.state.threads = effective_.threads;
  if (start_.has_settings && start_.state.device != effective_.device)
    progress_.note(
        fmt::format("warning: begun on {}, now on {}: the results agree to rounding, not bit for bit",
                    start_.state.device, effective_.device));
  start_.state.device = effective_.device;
  return {};
}

Status Run::make_model() {
  EAGLET_RETURN_IF_ERROR(check_fits(start_.draft.config, target_, data_.store->header()));
  TttOptions ttt = ttt_options(options_, effective_.compute_type);
  ttt.states = data_.state_form();
  const VerifierTensors verifier{weights_.embed_tokens.data(), weights_.final_norm.data(),
                                 weights_.head().data(), target_.rms_norm_eps};
  EAGLET_ASSIGN_OR_RETURN(model_, DraftModel::create(std::move(start_.draft), verifier, ttt,
                                                     options_.max_seq_len, true, options_.device));
  const bool shard = options_.shard_optimizer;
  optimizer_ = std::make_unique<Optimizer>(optimizer_options(options_), model_->weights().table,
                                           shard ? comm_.rank() : 0, shard ? comm_.ranks() : 1,
                                           options_.device == nullptr);
  if (options_.device != nullptr) EAGLET_RETURN_IF_ERROR(optimizer_->place_on(*options_.device));
  if (!resume_.checkpoint || !resume_.checkpoint->check.optimizer) return {};
  return optimizer_->read(resume_.checkpoint->path + "/" + kOptimizerFile);
}

// The target's embeddings and the teacher's head rows belong to the draft in use, though they are not
// trained.
std::int64_t Run::total_params() const {
  const DraftConfig& c = model_->weights().config;
  const bool embeddings_counted = model_->weights().find("embed_tokens.weight") != nullptr;
  return static_cast<std::int64_t>(model_->weights().values.size()) +
         (embeddings_counted ? 0 : c.vocab * c.hidden) + c.draft_vocab * c.target_hidden;
}

Status Run::plan() {
  EAGLET_ASSIGN_OR_RETURN(plan_, make_train_plan(options_, data_, target_, model_->weights().config,
                                                 ttt_options(options_, effective_.compute_type),
                                                 effective_.threads, program_bytes_));
  return {};
}

Status Run::write_config() {
  const std::string path = options_.output_dir + "/train_config.json";
  if (path_exists(path)) {
    const Result<Json> earlier = read_json_file(path);
    if (resume_.checkpoint && earlier.ok() && earlier->is_object() && earlier->contains("run_id") &&
        (*earlier)["run_id"].is_string())
      run_id_ = (*earlier)["run_id"].get<std::string>();
  }
  if (run_id_.empty()) {
    std::error_code error;
    const std::string place = std::filesystem::absolute(options_.output_dir, error).string();
    run_id_ = hex64(xxh64(fmt::format("{} {} {:.6f}", place, ::getpid(), wall_seconds())));
  }
  const PackingReport& packing = data_.training_plan.report();
  Json config = train_flags(options_, effective_);
  config["run_id"] = run_id_;
  config["target_name"] = target_.name;
  config["target_layer_ids"] = data_.store->header().aux_layers;
  config["documents"] = data_.training.size();
  config["held_out_documents"] = data_.held_out.size();
  config["train_batches"] = packing.batches;
  config["total_steps"] = effective_.total_steps;
  config["real_tokens"] = packing.real_tokens;
  config["supervised_tokens"] = packing.supervised_tokens;
  config["fill_ratio"] = packing.fill_ratio;
  config["cut_documents"] = packing.cut_documents;
  config["dropped_unsupervised"] = packing.dropped_unsupervised;
  config["dropped_beyond_limit"] = packing.dropped_beyond_limit;
  config["dropped_empty"] = packing.dropped_empty;
  config["covered_share"] = start_.state.covered_share;
  config["needed_gflop_per_epoch"] = plan_.needed_flops_epoch / 1e9;
  config["needed_gflop"] = plan_.needed_flops_run / 1e9;
  config["planned_memory_bytes"] = plan_.memory.total();
  config["trainable_params"] = model_->trainable_elements();
  config["total_params"] = total_params();
  return write_json_file(path, config);
}

Status Run::open_records() {
  if (!leads()) {
    records_.emplace(RunRecords::none());
    return {};
  }
  EAGLET_RETURN_IF_ERROR(write_config());
  EAGLET_ASSIGN_OR_RETURN(
      RunRecords records,
      RunRecords::open(options_.output_dir, run_id_, effective_.total_steps, options_.on_step_line));
  records_.emplace(std::move(records));
  const TrainerState& state = start_.state;
  const std::string message = resume_.checkpoint ? "from " + resume_.checkpoint->path
                                                 : fmt::format("{} steps", effective_.total_steps);
  EAGLET_RETURN_IF_ERROR(
      records_->event(resume_.checkpoint ? "resume" : "start", state.step + 1, state.epoch, message));
  return records_->status("prepare", 60);
}

// A kill may have come between a save and its links.
Status Run::refresh_links() const {
  if (!resume_.checkpoint) return {};
  const std::string checkpoints = options_.output_dir + "/checkpoints";
  const TrainerState& state = start_.state;
  EAGLET_RETURN_IF_ERROR(link_checkpoint(checkpoints, "latest", state.step));
  const std::int64_t best = data_.can_validate ? state.best_step : state.step;
  if (best < 0 || !path_exists(checkpoints + "/" + checkpoint_name(best))) return {};
  return link_checkpoint(checkpoints, "best", best);
}

void Run::describe() const {
  const auto millions = [](std::int64_t n) { return static_cast<double>(n) / 1e6; };
  for (const std::string& line :
       plan_lines(plan_, options_, effective_.schedule, comm_.ranks(), effective_.threads))
    progress_.note(line);
  progress_.note(
      fmt::format("draft: {:.2f} M trainable of {:.2f} M parameters, products in {}; vocabulary {} of {}, "
                  "covering {:.2f} % "
                  "of the supervised tokens",
                  millions(model_->trainable_elements()), millions(total_params()),
                  compute_type_name(effective_.compute_type), model_->weights().config.draft_vocab,
                  target_.vocab, 100 * start_.state.covered_share));
  if (options_.device != nullptr) {
    const auto size = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
    progress_.note(fmt::format("device: {}; {} of its {} for weights, gradients, optimizer and activations",
                               effective_.device, size(model_->memory_bytes() + optimizer_->bytes()),
                               size(options_.device->memory_bytes())));
  }
  if (!data_.can_validate)
    progress_.note("nothing is held out that could be validated; best is the latest checkpoint");
}

bool Run::finished() const {
  const TrainerState& state = start_.state;
  if (options_.early_stop_patience > 0 && state.stale_validations >= options_.early_stop_patience)
    return true;
  if (state.step + 1 < effective_.total_steps) return false;
  return !data_.can_validate || state.last_validation.step == state.step;
}

TrainReport Run::report() const {
  const TrainerState& state = start_.state;
  const std::string checkpoints = options_.output_dir + "/checkpoints/";
  TrainReport report;
  report.steps = state.step + 1;
  report.total_steps = effective_.total_steps;
  report.resumed_from_step = resume_.checkpoint ? resume_.checkpoint->step : -1;
  report.last_checkpoint = checkpoints + checkpoint_name(state.step);
  report.best_checkpoint = checkpoints + checkpoint_name(state.best_step);
  if (state.best_step < 0 || !path_exists(report.best_checkpoint))
    report.best_checkpoint = report.last_checkpoint;
  report.first_loss = state.first_loss;
  report.last_loss = state.last_loss;
  if (state.last_validation.step >= 0)
    report.held_out_acceptance_length = state.last_validation.acceptance_length;
  report.held_out_full_acc = state.last_validation.full_acc;
  report.seconds = seconds_;
  report.tokens_per_second = seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0;
  report.real_tokens = data_.training_plan.report().real_tokens;
  report.trainable_params = model_->trainable_elements();
  report.total_params = total_params();
  report.skipped_updates = state.skipped_updates;
  report.compute_type = compute_type_name(effective_.compute_type);
  report.device = effective_.device;
  report.ranks = comm_.ranks();
  report.needed_flops = needed_flops_;
  report.rank_wait_share = rank_wait_share_;
  return report;
}

Result<TrainReport> Run::go() {
  EAGLET_RETURN_IF_ERROR(prepare());
  EAGLET_RETURN_IF_ERROR(make_model());
  if (leads()) EAGLET_RETURN_IF_ERROR(refresh_links());
  if (finished()) {
    progress_.note(fmt::format("all {} steps were done before: nothing to do", effective_.total_steps));
    return report();
  }
  EAGLET_RETURN_IF_ERROR(plan());
  EAGLET_RETURN_IF_ERROR(open_records());
  describe();
  Trainer trainer(options_, data_, *model_, *optimizer_, effective_.schedule, effective_.total_steps,
                  start_.state, *records_, comm_, progress_);
  const Status status = trainer.run();
  if (!status.ok()) {
    if (status.code() != StatusCode::kInterrupted) (void)records_->status("failed", 0);
    return status;
  }
  start_.state = trainer.state();
  seconds_ = trainer.seconds();
  tokens_ = trainer.tokens();
  needed_flops_ = trainer.needed_flops();
  rank_wait_share_ = trainer.rank_wait_share();
  return report();
}

Result<TrainPlan> Run::measure(std::int64_t steps) {
  set_num_threads(options_.threads);
  effective_.threads = num_threads();
  EAGLET_RETURN_IF_ERROR(check_device());
  EAGLET_ASSIGN_OR_RETURN(data_, open_train_data(options_, target_));
  EAGLET_RETURN_IF_ERROR(choose_steps());
  EAGLET_RETURN_IF_ERROR(start());
  EAGLET_RETURN_IF_ERROR(choose_compute_type());
  EAGLET_RETURN_IF_ERROR(make_model());
  EAGLET_RETURN_IF_ERROR(plan());
  UpdateStep update(options_, data_, *model_, *optimizer_, effective_.schedule, comm_);
  TrainerState state = start_.state;
  EAGLET_RETURN_IF_ERROR(update.start(state));
  double flops = 0, seconds = 0;
  progress_.begin("measure", static_cast<std::uint64_t>(steps + 1), "steps");
  for (std::int64_t i = 0; i <= steps; ++i) {  // the first one warms up
    if (interrupted())
      return Status(StatusCode::kInterrupted, "stopped while measuring; nothing was written");
    const double begin = monotonic_seconds();
    EAGLET_ASSIGN_OR_RETURN(const UpdateResult result, update.make(state, {}));
    state.advance(result.batches, static_cast<std::int64_t>(result.facts.tokens));
    progress_.update(static_cast<std::uint64_t>(i + 1));
    if (i == 0) continue;
    seconds += monotonic_seconds() - begin;
    flops += result.facts.needed_flops;
  }
  progress_.end(fmt::format("{} steps in {:.1f} s", steps, seconds));
  add_measurement(steps, flops, seconds, data_, options_, &plan_);
  return plan_;
}

}  // namespace

Result<TrainReport> train_on_target(const TrainOptions& options, const TargetFacts& target,
                                    const TargetWeights& weights, Progress& progress) {
  return Run(options, target, weights, progress).go();
}

Result<TrainPlan> measure_on_target(const TrainOptions& options, const TargetFacts& target,
                                    const TargetWeights& weights, std::int64_t steps, Progress& progress) {
  return Run(options, target, weights, progress).measure(steps);
}

}  // namespace eaglet
