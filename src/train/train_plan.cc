#include "train/train_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "base/clock.h"
#include "base/interrupt.h"
#include "device/compute_type.h"
#include "device/threads.h"
#include "draft/memory_forecast.h"
#include "formats/json.h"
#include "train/checkpoint.h"
#include "train/draft_setup.h"
#include "train/needed_work.h"
#include "train/optimizer.h"
#include "train/state_noise.h"
#include "train/token_rows.h"
#include "train/train_run.h"
#include "train/train_settings.h"

namespace eaglet {
namespace {

// Kernels that oneDNN makes, threads, the allocator's slack.
constexpr std::uint64_t kLibraryBytes = std::uint64_t{24} << 20;

std::uint64_t batch_bytes(std::int64_t rows, const DraftConfig& c, const TrainData& data) {
  const StateForm form = data.states == BatchStates::kStored ? data.state_form() : StateForm::kF32;
  const std::int64_t numbers = data.states == BatchStates::kInStore ? 0 : (c.num_aux() + 1) * c.target_hidden;
  const std::int64_t scales = form == StateForm::kFp8 ? 4 * (c.num_aux() + 1) : 0;
  return static_cast<std::uint64_t>(rows * (bytes_of_number(form) * numbers + scales + 13));
}

int ranks_of(const TrainOptions& options) {
  return options.comm != nullptr ? options.comm->ranks() : 1;
}

// What does not depend on the rows of a batch.
MemoryPlan fixed_memory(const TrainOptions& options, const DraftConfig& c, bool tied_head,
                        std::int64_t batches, const TrainData& data) {
  MemoryPlan m;
  const std::vector<ParameterInfo> table = parameter_table(c, options.train_head, options.train_embeddings);
  for (const ParameterInfo& parameter : table) {
    const auto bytes = sizeof(float) * static_cast<std::uint64_t>(parameter.elements);
    m.weights += bytes;
    if (parameter.trainable) m.gradients += bytes;
  }
  const bool shard = options.shard_optimizer;
  const int ranks = ranks_of(options);
  m.optimizer = Optimizer(optimizer_options(options), table, shard && ranks > 1 ? options.comm->rank() : 0,
                          shard ? ranks : 1, false)
                    .bytes();
  m.target = 4 * static_cast<std::uint64_t>((c.vocab * (tied_head ? 1 : 2) + 1) * c.target_hidden);
  // Filled ahead, in work, free; and with a device the next one, whose states are on their way.
  const std::int64_t in_hand = options.device != nullptr ? 3 : 2,
                     ahead = std::min<std::int64_t>(2 * options.num_workers + in_hand, batches);
  m.batches = batch_bytes(options.max_seq_len, c, data) * static_cast<std::uint64_t>(ahead);
  return m;
}

// Arithmetic and real tokens of a run's updates, in the run's own order.
class WorkCounter {
 public:
  WorkCounter(const TrainOptions& options, const TrainData& data, const DraftConfig& config)
      : options_(options),
        data_(data),
        work_(config, static_cast<int>(options.ttt_steps), options.train_head) {}

  Status count(TrainPlan* plan) {
    const std::int64_t batches = plan->packing.batches;
    EAGLET_RETURN_IF_ERROR(count_batches(0, batches, &plan->needed_flops_epoch, nullptr));
    const std::int64_t epochs = plan->total_steps / plan->updates_per_epoch;
    const std::int64_t left = plan->total_steps % plan->updates_per_epoch * plan->batches_per_update;
    for (std::int64_t epoch = 0; epoch <= epochs; ++epoch) {
      const std::int64_t end = epoch < epochs ? batches : std::min(left, batches);
      EAGLET_RETURN_IF_ERROR(count_batches(epoch, end, &plan->needed_flops_run, &plan->run_tokens));
    }
    return {};
  }

 private:
  struct Batch {
    double flops = 0, tokens = 0;
  };
  Status count_batches(std::int64_t epoch, std::int64_t end, double* flops, double* tokens) {
    if (end == 0) return {};
    const auto order = data_.training_plan.epoch(epoch);
    for (std::int64_t i = 0; i < end; ++i) {
      if (interrupted()) return Status(StatusCode::kInterrupted, "stopped while planning; nothing was begun");
      const std::uint64_t seed = seed_of_batch(options_.seed, epoch, i);
      EAGLET_ASSIGN_OR_RETURN(const Batch batch, count_batch(order[static_cast<std::size_t>(i)], seed));
      *flops += batch.flops;
      if (tokens != nullptr) *tokens += batch.tokens;
    }
    return {};
  }
  // A batch keeps its documents in every epoch, only their order changes, and a document is in one batch.
  // With row sampling every epoch draws other rows.
  Result<Batch> count_batch(const std::vector<std::size_t>& documents, std::uint64_t seed) {
    const std::size_t key = *std::min_element(documents.begin(), documents.end());
    const bool same = options_.row_sampling == 1;
    if (const auto known = known_.find(key); same && known != known_.end()) return known->second;
    EAGLET_RETURN_IF_ERROR(fill_token_rows(*data_.store, documents, options_.max_seq_len, &rows_));
    const Batch batch{work_.flops(rows_.inputs(), options_.row_sampling, seed),
                      static_cast<double>(rows_.real_tokens)};
    known_[key] = batch;
    return batch;
  }

  const TrainOptions& options_;
  const TrainData& data_;
  NeededWork work_;
  TokenRows rows_;
  std::unordered_map<std::size_t, Batch> known_;
};

Result<std::uint64_t> most_activations(const TrainOptions& options, const TrainData& data,
                                       const DraftConfig& config, TttOptions ttt, int threads) {
  ttt.states = data.state_form();
  MemoryForecast forecast(config, ttt, true, threads, options.device != nullptr);
  TokenRows rows;
  std::uint64_t most = 0;
  for (const std::vector<std::size_t>& documents : data.training_plan.epoch(0)) {
    if (interrupted()) return Status(StatusCode::kInterrupted, "stopped while planning; nothing was begun");
    EAGLET_RETURN_IF_ERROR(fill_token_rows(*data.store, documents, options.max_seq_len, &rows));
    most = std::max(most, forecast.activation_bytes(rows.inputs()));
  }
  return most;
}

}  // namespace

std::uint64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  unsigned long long all = 0, resident = 0;
  const int read = std::fscanf(file, "%llu %llu", &all, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

Result<StepCounts> count_steps(const TrainOptions& options, std::int64_t batches_per_epoch) {
  StepCounts counts;
  counts.batches_per_update = batches_per_update(options);
  counts.updates_per_epoch = (batches_per_epoch + counts.batches_per_update - 1) / counts.batches_per_update;
  counts.total_steps = options.max_steps > 0 ? options.max_steps : options.epochs * counts.updates_per_epoch;
  Schedule& schedule = counts.schedule;
  EAGLET_ASSIGN_OR_RETURN(schedule.kind, parse_schedule_kind(options.scheduler_type));
  schedule.base_lr = options.lr;
  schedule.num_cosine_cycles = options.num_cosine_cycles;
  schedule.min_lr_ratio = options.min_lr_ratio;
  schedule.total_steps =
      options.scheduler_total_steps > 0 ? options.scheduler_total_steps : counts.total_steps;
  std::int64_t usual = schedule.kind == Schedule::Kind::kNone ? 0 : schedule.total_steps / 100;
  if (options.warmup_ratio >= 0)
    usual = static_cast<std::int64_t>(options.warmup_ratio * static_cast<double>(schedule.total_steps));
  schedule.warmup_steps = options.warmup_steps >= 0 ? options.warmup_steps : usual;
  if (schedule.kind == Schedule::Kind::kNone || counts.total_steps <= schedule.total_steps) return counts;
  return Status(StatusCode::kUsage,
                fmt::format("{} steps are asked for, but the schedule ends after {}", counts.total_steps,
                            schedule.total_steps),
                "--scheduler-total-steps", "give at least as many as there are steps, or leave it out");
}

Result<DraftConfig> planned_config(const TrainOptions& options, const TargetFacts& target,
                                   const StoreHeader& header) {
  if (options.from.empty()) {
    const std::int64_t size = options.draft_vocab_size > 0 ? options.draft_vocab_size : target.vocab;
    if (size > target.vocab)
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("a draft vocabulary of {} is larger than the target's of {}", size, target.vocab),
          "--draft-vocab-size", fmt::format("give {} or less", target.vocab));
    const DraftConfig config = draft_config_for(options, target, header, size);
    EAGLET_RETURN_IF_ERROR(check_draft_config(config));
    return config;
  }
  const std::string path = options.from + "/config.json";
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  Result<DraftConfig> config = draft_config_from_json(json);
  if (!config.ok()) return config.status().at(path);
  if (config->aux_layers.empty()) config->aux_layers = header.aux_layers;
  if (Status status = check_fits(*config, target, header); !status.ok()) return status.at(options.from);
  return config;
}

Result<ComputeType> planned_compute_type(const TrainOptions& options) {
  if (options.compute_type == "auto") return fastest_compute_type();
  return parse_compute_type(options.compute_type);
}

Result<TrainPlan> make_train_plan(const TrainOptions& options, const TrainData& data,
                                  const TargetFacts& target, const DraftConfig& config, const TttOptions& ttt,
                                  int threads, std::uint64_t program_bytes) {
  TrainPlan plan;
  plan.packing = data.training_plan.report();
  plan.aux_layers = data.store->header().aux_layers;
  plan.held_out_documents = static_cast<std::int64_t>(data.held_out.size());
  EAGLET_ASSIGN_OR_RETURN(const StepCounts counts, count_steps(options, plan.packing.batches));
  plan.batches_per_update = counts.batches_per_update;
  plan.updates_per_epoch = counts.updates_per_epoch;
  plan.total_steps = counts.total_steps;
  std::int64_t all = 0;
  for (const ParameterInfo& parameter :
       parameter_table(config, options.train_head, options.train_embeddings)) {
    all += parameter.elements;
    if (parameter.trainable) plan.trainable_params += parameter.elements;
  }
  plan.total_params = all + (options.train_embeddings ? 0 : config.vocab * config.hidden) +
                      config.draft_vocab * config.target_hidden;
  EAGLET_RETURN_IF_ERROR(WorkCounter(options, data, config).count(&plan));
  const std::int64_t batches = plan.total_steps * options.accumulation_steps;
  plan.memory = fixed_memory(options, config, target.tied_head, batches, data);
  if (data.can_validate) plan.memory.batches += batch_bytes(options.max_seq_len, config, data);
  EAGLET_ASSIGN_OR_RETURN(plan.memory.activations, most_activations(options, data, config, ttt, threads));
  plan.memory.packed =
      MemoryForecast(config, ttt, true, threads, options.device != nullptr).packed_bytes(options.train_head);
  plan.memory.program = program_bytes + kLibraryBytes;
  plan.state_bytes = data.store->bytes();
  DraftWeights shape;
  shape.vocab.target_vocab = config.vocab;
  const Optimizer optimizer(optimizer_options(options),
                            parameter_table(config, options.train_head, options.train_embeddings), 0, 1,
                            false);
  plan.checkpoint_bytes = checkpoint_bytes(shape, optimizer.state_bytes()) + plan.memory.weights +
                          8 * static_cast<std::uint64_t>(config.draft_vocab);
  return plan;
}

void add_measurement(std::int64_t steps, double flops, double seconds, const TrainData& data,
                     const TrainOptions& options, TrainPlan* plan) {
  if (steps < 1 || seconds <= 0) return;
  const std::int64_t updates = plan->total_steps,
                     epochs = (updates + plan->updates_per_epoch - 1) / plan->updates_per_epoch;
  const auto times = [&](std::int64_t every) {
    return static_cast<double>(every > 0 ? (updates + every - 1) / every : epochs);
  };
  plan->measured_steps = steps;
  plan->measured_flops_per_second = flops / seconds;
  plan->seconds_per_step = seconds / static_cast<double>(steps);
  plan->seconds = plan->needed_flops_run / plan->measured_flops_per_second;
  if (data.can_validate) {
    const double held_out = static_cast<double>(data.held_out_plan.report().real_tokens) /
                            static_cast<double>(plan->packing.real_tokens);
    plan->seconds += times(options.validate_every_steps) * held_out * plan->needed_flops_epoch / 3 /
                     plan->measured_flops_per_second;
  }
  plan->seconds +=
      times(options.checkpoint_every_steps) * static_cast<double>(plan->checkpoint_bytes) / 200e6;
}

std::int64_t longest_that_fits(const TrainOptions& options, const DraftConfig& config, const TttOptions& ttt,
                               const MemoryPlan& plan, int threads, std::uint64_t bytes,
                               std::int64_t longest) {
  MemoryForecast forecast(config, ttt, true, threads);
  const std::uint64_t batches = plan.batches / static_cast<std::uint64_t>(options.max_seq_len);
  const std::uint64_t fixed = plan.total() - plan.activations - plan.batches;
  const auto fits = [&](std::int64_t rows) {
    const auto n = static_cast<std::size_t>(rows);
    TokenRows one;  // one document, every row supervised
    one.input_ids.assign(n, 0);
    one.document_ids.assign(n, 0);
    one.loss_mask.assign(n, 1);
    for (std::int64_t p = 0; p < rows; ++p) one.position_ids.push_back(static_cast<std::int32_t>(p + 1));
    return fixed + batches * n + forecast.activation_bytes(one.inputs()) <= bytes;
  };
  std::int64_t low = 0, high = longest / 64;  // in units of 64 rows
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (fits(64 * middle))
      low = middle;
    else
      high = middle - 1;
  }
  return 64 * low;
}

std::vector<std::string> plan_lines(const TrainPlan& plan, const TrainOptions& options, const Schedule& s,
                                    int ranks, int threads) {
  const PackingReport& p = plan.packing;
  const MemoryPlan& m = plan.memory;
  const auto bytes = [](std::uint64_t n) { return human_bytes(static_cast<double>(n)); };
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("documents: {} to train on, {} held out; {} real tokens an epoch, {} supervised ({:.0f} %)",
                  p.documents, plan.held_out_documents, p.real_tokens, p.supervised_tokens,
                  100.0 * static_cast<double>(p.supervised_tokens) / static_cast<double>(p.real_tokens)));
  lines.push_back(fmt::format(
      "batches: {} of {} rows, fill {:.1f} %; {} documents cut; left out: {} without a supervised token, {} "
      "supervised only beyond the cut, {} shorter than 2 tokens",
      p.batches, options.max_seq_len, 100 * p.fill_ratio, p.cut_documents, p.dropped_unsupervised,
      p.dropped_beyond_limit, p.dropped_empty));
  lines.push_back(fmt::format(
      "memory{}: {} = weights {}, gradients {}, optimizer {}, packed {}, activations {}, target {}, "
      "batches {}, program {}; checkpoint {}",
      options.device != nullptr ? " (the device's and the host's together)"
      : ranks > 1               ? " of a rank"
                                : "",
      bytes(m.total()), bytes(m.weights), bytes(m.gradients), bytes(m.optimizer), bytes(m.packed),
      bytes(m.activations), bytes(m.target), bytes(m.batches), bytes(m.program),
      bytes(plan.checkpoint_bytes)));
  const std::string several = plan.batches_per_update == 1
                                  ? std::string()
                                  : fmt::format(", {} an update over {} {}", plan.batches_per_update, ranks,
                                                ranks == 1 ? "rank" : "ranks");
  lines.push_back(fmt::format("steps: {} ({} batches an epoch{}), {}, rate {:g} {}, warm-up {}, {} threads",
                              plan.total_steps, p.batches, several, options.optimizer, s.base_lr,
                              options.scheduler_type, s.warmup_steps, threads));
  lines.push_back(fmt::format("work: {:.3f} GFLOP a token, {:.1f} TFLOP an epoch, {:.1f} TFLOP in all",
                              plan.needed_flops_epoch / static_cast<double>(p.real_tokens) / 1e9,
                              plan.needed_flops_epoch / 1e12, plan.needed_flops_run / 1e12));
  return lines;
}

Result<TrainPlan> plan_training(const TrainOptions& options, std::int64_t measure_steps, Progress& progress) {
  const std::uint64_t program_bytes = resident_bytes();
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts target, read_target_facts(options.model_path));
  if (measure_steps > 0) {
    EAGLET_ASSIGN_OR_RETURN(const TargetWeights weights, read_target_weights(options.model_path));
    return measure_on_target(options, target, weights, measure_steps, progress);
  }
  set_num_threads(options.threads);
  EAGLET_ASSIGN_OR_RETURN(const TrainData data, open_train_data(options, target));
  EAGLET_ASSIGN_OR_RETURN(const DraftConfig config, planned_config(options, target, data.store->header()));
  EAGLET_ASSIGN_OR_RETURN(const ComputeType type, planned_compute_type(options));
  return make_train_plan(options, data, target, config, ttt_options(options, type), num_threads(),
                         program_bytes);
}

}  // namespace eaglet
