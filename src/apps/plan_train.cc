#include "apps/plan_train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "apps/terminal.h"
#include "apps/train_flags.h"
#include "base/clock.h"
#include "device/threads.h"
#include "extract/online_states.h"
#include "formats/json.h"
#include "formats/target_model.h"
#include "train/train_plan.h"
#include "train/train_settings.h"
#include "verifier/widened_copy.h"

namespace eaglet::apps {
namespace {

constexpr const char* kPlanTrainExamples =
    "  eaglet plan train --store states/ --model target.gguf --draft-vocab-size 32000 --max-seq-len 8192\n"
    "  eaglet plan train --store states/ --model target.gguf --measure-steps 3\n"
    "  eaglet plan train --online --conversations c.jsonl --model target.gguf   (before any state is made)";

struct PlanTrainFlags {
  TrainOptions train;
  std::int64_t measure_steps = 0;
};

struct Found {
  TrainPlan plan;
  Schedule schedule;
  std::uint64_t free_bytes = 0;
  std::int64_t fitting_max_seq_len = 0;
};

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
  json["seconds"] = p.measured_steps > 0 ? Json(p.seconds) : Json(nullptr);
  json["seconds_per_step"] = p.measured_steps > 0 ? Json(p.seconds_per_step) : Json(nullptr);
  json["measured_gflops"] = p.measured_steps > 0 ? Json(p.measured_flops_per_second / 1e9) : Json(nullptr);
  return json;
}

std::string plan_text(const Found& found, const TrainOptions& options) {
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
  return text;
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
  return [flags](Context& context) -> Status {
    EAGLET_ASSIGN_OR_RETURN(const Found found, plan_run(*flags, *context.progress));
    write_whole(STDOUT_FILENO,
                context.json ? plan_json(found).dump(2) + "\n" : plan_text(found, flags->train));
    return {};
  };
}

}  // namespace eaglet::apps
