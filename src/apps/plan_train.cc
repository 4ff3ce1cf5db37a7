#include "apps/plan_train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "apps/plan_device.h"
#include "apps/terminal.h"
#include "apps/train_flags.h"
#include "base/clock.h"
#include "device/threads.h"
#include "extract/online_states.h"
#include "formats/json.h"
#include "formats/target_model.h"
#include "train/planned_batches.h"
#include "train/train_plan.h"
#include "train/train_settings.h"
#include "verifier/widened_copy.h"

namespace eaglet::apps {
namespace {

constexpr const char* kPlanTrainExamples =
    "  eaglet plan train --store states/ --model target.gguf --draft-vocab-size 32000 --max-seq-len 8192\n"
    "  eaglet plan train --store states/ --model target.gguf --measure-steps 3\n"
    "  eaglet plan train --store states/ --model target.gguf --max-seq-len 8192 --device h100,h200 --ranks "
    "1,4\n"
    "  eaglet plan train --online --conversations c.jsonl --model target.gguf   (before any state is made)";

struct PlanTrainFlags {
  TrainOptions train;
  DeviceChoice on;
  std::int64_t measure_steps = 0;
};

struct Found {
  TrainPlan plan;
  Schedule schedule;
  std::uint64_t free_bytes = 0;
  std::int64_t fitting_max_seq_len = 0;
  PlannedBatches batches;  // of the device's plans
  std::vector<PlannedOnDevice> on_devices;
};

// The run's own batches, of which these are looked at.
constexpr std::size_t kBatchesLookedAt = 32;

Status plan_run_on_devices(const PlanTrainFlags& flags, const TrainOptions& options,
                           const TargetFacts& target, const DraftConfig& config, Found* found) {
  EAGLET_ASSIGN_OR_RETURN(found->batches, planned_batches(options, target, kBatchesLookedAt));
  PlannedStep step;
  step.config = config;
  step.target_vocab = target.vocab;
  step.ttt_steps = static_cast<int>(options.ttt_steps);
  step.train_head = options.train_head;
  step.max_seq_len = options.max_seq_len;
  step.document_tokens =
      std::max<std::int64_t>(2, static_cast<std::int64_t>(std::lround(found->batches.document_tokens)));
  step.supervised_share = found->batches.supervised_share;
  for (const TokenRows& rows : found->batches.rows) step.batches.push_back(rows.inputs());
  step.tokens_of_batch = found->batches.tokens;
  step.accumulation = options.accumulation_steps;
  step.options = ttt_options(options, ComputeType::kBf16);
  step.options.states = found->batches.form;
  EAGLET_ASSIGN_OR_RETURN(found->on_devices, plan_on_devices(flags.on, step));
  return {};
}

double run_seconds(const Found& found, const PlannedOnDevice& one) {
  return found.plan.run_tokens / one.plan.tokens_per_second;
}

Result<Found> plan_run(const PlanTrainFlags& flags, Progress& progress) {
  TrainOptions options = flags.train;
  if (options.output_dir.empty()) options.output_dir = "not written";
  EAGLET_RETURN_IF_ERROR(check_train_options(options));
  if (options.online && flags.measure_steps > 0)
    options.open_store = [&options] { return open_online_states(online_options(options)); };
  else if (options.online)
    options.open_store = [&options] { return open_tokens_only(online_options(options)); };
  Found found;
  found.free_bytes = available_memory_bytes() + resident_bytes();  // ours is in the plan
  EAGLET_ASSIGN_OR_RETURN(found.plan, plan_training(options, flags.measure_steps, progress));
  EAGLET_ASSIGN_OR_RETURN(const StepCounts counts, count_steps(options, found.plan.packing.batches));
  found.schedule = counts.schedule;
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts target, read_target_facts(options.model_path));
  StoreHeader header;
  header.hidden = target.hidden;
  header.target_layers = target.num_layers;
  header.aux_layers = found.plan.aux_layers;
  EAGLET_ASSIGN_OR_RETURN(const DraftConfig config, planned_config(options, target, header));
  constexpr std::int64_t kLongest = 1 << 20;
  EAGLET_ASSIGN_OR_RETURN(const ComputeType type, planned_compute_type(options));
  found.fitting_max_seq_len = longest_that_fits(options, config, ttt_options(options, type),
                                                found.plan.memory, num_threads(), found.free_bytes, kLongest);
  if (!flags.on.devices.empty())
    EAGLET_RETURN_IF_ERROR(plan_run_on_devices(flags, options, target, config, &found));
  return found;
}

Json plan_json(const Found& found) {
  const TrainPlan& p = found.plan;
  const MemoryPlan& m = p.memory;
  Json json = {{"schema", 1},
               {"documents", p.packing.documents},
               {"held_out_documents", p.held_out_documents},
               {"train_batches", p.packing.batches},
               {"batches_per_update", p.batches_per_update},
               {"total_steps", p.total_steps},
               {"real_tokens", p.packing.real_tokens},
               {"supervised_tokens", p.packing.supervised_tokens},
               {"fill_ratio", p.packing.fill_ratio},
               {"cut_documents", p.packing.cut_documents},
               {"dropped_unsupervised", p.packing.dropped_unsupervised},
               {"dropped_beyond_limit", p.packing.dropped_beyond_limit},
               {"dropped_empty", p.packing.dropped_empty},
               {"trainable_params", p.trainable_params},
               {"total_params", p.total_params},
               {"needed_gflop_per_epoch", p.needed_flops_epoch / 1e9},
               {"needed_gflop", p.needed_flops_run / 1e9},
               {"run_tokens", p.run_tokens},
               {"memory_bytes", m.total()},
               {"memory",
                {{"weights", m.weights},
                 {"gradients", m.gradients},
                 {"optimizer", m.optimizer},
                 {"packed", m.packed},
                 {"activations", m.activations},
                 {"target", m.target},
                 {"batches", m.batches},
                 {"program", m.program}}},
               {"free_bytes", found.free_bytes},
               {"fitting_max_seq_len", found.fitting_max_seq_len},
               {"state_bytes", p.state_bytes},
               {"checkpoint_bytes", p.checkpoint_bytes}};
  for (const PlannedOnDevice& one : found.on_devices) {
    json["devices"].push_back(planned_json(one));
    json["devices"].back()["run_seconds"] = run_seconds(found, one);
  }
  json["seconds"] = p.measured_steps > 0 ? Json(p.seconds) : Json(nullptr);
  json["seconds_per_step"] = p.measured_steps > 0 ? Json(p.seconds_per_step) : Json(nullptr);
  json["measured_gflops"] = p.measured_steps > 0 ? Json(p.measured_flops_per_second / 1e9) : Json(nullptr);
  return json;
}

std::string on_devices_text(const Found& found, const DeviceChoice& choice) {
  if (found.on_devices.empty()) return {};
  const PlannedBatches& b = found.batches;
  std::string text = fmt::format(
      "\non devices: {} of the {} batches looked at, {:.0f} tokens each, documents of {:.0f}, {:.0f} % "
      "supervised; "
      "memory as this eaglet's CUDA step takes it\n",
      b.rows.size(), b.batches, b.tokens, b.document_tokens, 100 * b.supervised_share);
  text += planned_text(choice, found.on_devices) + "the run: about";
  for (const PlannedOnDevice& one : found.on_devices)
    text += fmt::format("{} {} on {} {}", &one == &found.on_devices.front() ? "" : ",",
                        human_duration(run_seconds(found, one)), one.ranks, one.device.name);
  return text + "\n";
}

std::string plan_text(const Found& found, const TrainOptions& options, const DeviceChoice& choice) {
  const TrainPlan& p = found.plan;
  std::string text;
  for (const std::string& line : plan_lines(p, options, found.schedule, 1, num_threads()))
    text += line + "\n";
  text +=
      fmt::format("draft: {:.2f} M trainable of {:.2f} M parameters\n",
                  static_cast<double>(p.trainable_params) / 1e6, static_cast<double>(p.total_params) / 1e6);
  const auto needed = static_cast<double>(p.memory.total()), free = static_cast<double>(found.free_bytes);
  text += needed <= free
              ? fmt::format(
                    "this machine: {} free, it fits; with documents that long --max-seq-len could be {}\n",
                    human_bytes(free), found.fitting_max_seq_len)
              : fmt::format("this machine: {} free, {} are missing; --max-seq-len {} would fit\n",
                            human_bytes(free), human_bytes(needed - free), found.fitting_max_seq_len);
  if (p.measured_steps > 0)
    text += fmt::format("time: about {} ({:.2f} s a step, {:.0f} GFLOP/s, measured over {} steps)\n",
                        human_duration(p.seconds), p.seconds_per_step, p.measured_flops_per_second / 1e9,
                        p.measured_steps);
  else
    text += "time: not measured; --measure-steps 3 makes three steps in memory and tells it\n";
  return text + on_devices_text(found, choice);
}

}  // namespace

Run add_plan_train(CLI::App& app) {
  auto flags = std::make_shared<PlanTrainFlags>();
  app.footer(kPlanTrainExamples);
  app.option_defaults()->always_capture_default();
  add_train_flags(app, flags->train);
  app.get_option("--output-dir")->required(false);
  app.add_option("--measure-steps", flags->measure_steps,
                 "make so many steps in memory, for the time; 0 = nothing is computed")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", flags->on.devices,
                 "and on these, on paper: a100, h100, h200, b200, rtx-pro-6000, 4090 (docs/gpu-plan.md)")
      ->delimiter(',')
      ->type_name("NAMES");
  flags->on.ranks = {1, 4, 8};
  add_device_choice_flags(app, &flags->on);
  for (const char* of_device : {"--ranks", "--link", "--calibration", "--by-op"})
    app.get_option(of_device)->needs(app.get_option("--device"));
  return [flags](Context& context) -> Status {
    EAGLET_ASSIGN_OR_RETURN(const Found found, plan_run(*flags, *context.progress));
    write_whole(STDOUT_FILENO,
                context.json ? plan_json(found).dump(2) + "\n" : plan_text(found, flags->train, flags->on));
    return {};
  };
}

}  // namespace eaglet::apps
