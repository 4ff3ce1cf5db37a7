#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/open_device.h"
#include "apps/own_ranks.h"
#include "apps/rank_place.h"
#include "apps/rank_settings.h"
#include "apps/stage_json.h"
#include "apps/terminal.h"
#include "apps/train_flags.h"
#include "apps/usage_error.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "extract/online_states.h"
#include "train/train.h"

namespace eaglet::apps {
namespace {

constexpr const char* kTrainExamples =
    "  eaglet train --store states/ --model target.gguf --output-dir draft/\n"
    "  eaglet train --store states/ --model target.gguf --output-dir draft/ \\\n"
    "      --draft-vocab-size 32000 --ttt-steps 3 --max-seq-len 8192 --epochs 5 --lr 1e-4 --from "
    "published-draft/\n"
    "  eaglet train --gpus 4 --store states/ --model target.gguf --output-dir draft/\n"
    "  mpirun -np 4 eaglet train --store states/ --model target.gguf --output-dir draft/\n"
    "  (the same command again goes on where an interrupted run stopped)";

std::string report_text(const TrainReport& r) {
  std::string text =
      fmt::format("trained {} steps; loss {:.4f} -> {:.4f}", r.steps, r.first_loss, r.last_loss);
  if (r.seconds > 0)
    text += fmt::format("; {:.0f} tokens/s over {}", r.tokens_per_second, human_duration(r.seconds));
  text += "\n";
  if (r.held_out_acceptance_length > 0)
    text += fmt::format(
        "held-out acceptance length {:.4f} (by depth {:.4f}; best token inside the draft vocabulary)\n",
        r.held_out_acceptance_length, fmt::join(r.held_out_full_acc, " "));
  if (r.skipped_updates > 0)
    text += fmt::format("{} updates were not finite and left out\n", r.skipped_updates);
  if (r.ranks > 1)
    text += fmt::format("{} ranks, {:.1f} % of the time waiting for other ranks\n", r.ranks,
                        100 * r.rank_wait_share);
  return text + fmt::format("best checkpoint {}\nlast checkpoint {}\n", r.best_checkpoint, r.last_checkpoint);
}

// The line per step belongs on stdout. Where stdout and stderr are one terminal it goes through the progress
// display instead, which knows how to keep its live line below.
std::function<void(const std::string&)> step_lines(const Context& context) {
  if (context.json) return {};
  if (is_live_terminal(STDOUT_FILENO) && is_live_terminal(STDERR_FILENO)) {
    Progress* progress = context.progress;
    return [progress](const std::string& line) { progress->note(line); };
  }
  return [](const std::string& line) { write_whole(STDOUT_FILENO, line + "\n"); };
}

// Only rank 0 talks; what another rank has to say reaches it with that rank's failure.
Result<TrainReport> train_with_ranks(const RankSettings& where, TrainOptions& options, Context& context,
                                     bool* leads) {
  EAGLET_ASSIGN_OR_RETURN(const RankPlace place,
                          open_rank_place(where.device, where.rank_timeout_seconds, *context.progress));
  Comm& comm = *place.comm;
  options.comm = &comm;
  options.device = place.device.get();
  if (options.online) options.open_store = [&options] { return open_online_states(online_options(options)); };
  NoProgress silent;
  *leads = comm.rank() == 0;
  if (*leads) options.on_step_line = step_lines(context);
  Result<TrainReport> report = train(options, *leads ? *context.progress : silent);
  // After a signal or a number that is not finite all ranks end together, and wait for rank 0's last
  // checkpoint.
  const StatusCode code = report.status().code();
  const bool together = code == StatusCode::kInterrupted || code == StatusCode::kNumeric;
  if (together)
    comm.leave_together();
  else
    comm.leave(report.ok() ? Status() : report.status());
  options.comm = nullptr;
  options.device = nullptr;
  return report;
}

Status run_train(RankSettings where, TrainOptions& options, Context& context) {
  EAGLET_RETURN_IF_ERROR(settle(&where));
  if (where.ranks > 1 && !is_own_rank()) {
    EAGLET_ASSIGN_OR_RETURN(context.verdict, run_own_ranks({where.ranks, {}, {}}, *context.progress));
    return {};
  }
  bool leads = true;
  EAGLET_ASSIGN_OR_RETURN(const TrainReport report, train_with_ranks(where, options, context, &leads));
  if (!leads) return {};
  Json json = {{"schema", 1}, {"output_dir", options.output_dir}};
  json.update(train_json(report));
  write_whole(STDOUT_FILENO, context.json ? json.dump(2) + "\n" : report_text(report));
  return {};
}

}  // namespace

Run add_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  auto where = std::make_shared<RankSettings>();
  app.description("Train an EAGLE-3 draft on a state store.");
  app.footer(kTrainExamples);
  app.option_defaults()->always_capture_default();
  add_train_flags(app, *options);
  app.add_option("--device", where->device, kDeviceHelp);
  app.add_option("--gpus", where->gpus,
                 "start a rank on each of N GPUs of this machine; they train together");
  app.add_option("--ranks", where->ranks, "start N ranks on this machine, without mpirun");
  app.add_option("--rank-timeout", where->rank_timeout_seconds,
                 "seconds to wait for a rank that lives and does not answer; 0: for ever");
  return [options, where](Context& context) { return run_train(*where, *options, context); };
}

}  // namespace eaglet::apps
