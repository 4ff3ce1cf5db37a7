#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/stage_json.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "train/train.h"

namespace eaglet::apps {
namespace {

constexpr const char* kExamples =
    "  eaglet train --store states/ --model target.gguf --output-dir draft/\n"
    "  eaglet train --store states/ --model target.gguf --output-dir draft/ \\\n"
    "      --draft-vocab-size 32000 --ttt-steps 3 --max-seq-len 8192 --epochs 5 --lr 1e-4 --from "
    "published-draft/\n"
    "  (the same command again goes on where an interrupted run stopped)";

void add_data_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--store,--states,--store-path", o.store_path, "state store, from eaglet extract")
      ->required();
  app.add_option("--model,--model-path", o.model_path, "the target the states came from (GGUF)")->required();
  app.add_option("--output-dir", o.output_dir, "checkpoints and records go here")->required();
  app.add_option("--hold-out-every", o.hold_out_every,
                 "hold out every n-th document, from the first, for validation; 0 = none");
  app.add_option("--max-seq-len", o.max_seq_len,
                 "rows of a batch: documents are packed into it, longer ones cut");
  app.add_option("--num-workers", o.num_workers, "threads that read and pack batches ahead");
}

void add_draft_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--from", o.from, "warm start from a draft directory (ours, speculators, SpecForge)");
  app.add_option("--draft-vocab-size", o.draft_vocab_size,
                 "tokens the draft can propose, the most frequent ones; 0 = all (with --from: that draft's)");
  app.add_option("--draft-arch", o.draft_arch, "llama or qwen3 (norms on q and k)");
  app.add_option("--num-layers", o.num_layers, "decoder layers; servers load drafts of 1");
  app.add_option("--intermediate-size", o.intermediate_size, "MLP width; 0 = the target's");
  app.add_option("--sliding-window", o.sliding_window, "attention window in tokens; 0 = full attention");
  app.add_flag("--norm-before-residual,!--no-norm-before-residual", o.norm_before_residual,
               "the normed state is what the layer adds to");
  app.add_flag("--norm-before-fc,!--no-norm-before-fc", o.norm_before_fc,
               "norm the captured states together");
  app.add_flag("--fc-norm,!--no-fc-norm", o.fc_norm, "norm each captured layer by itself");
  app.add_flag("--norm-output,!--no-norm-output", o.norm_output,
               "carry the normed state on to the next step");
  app.add_flag("--train-head,!--no-train-head", o.train_head,
               "train lm_head too (on unless --no-train-head)");
}

void add_optimizer_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--epochs", o.epochs, "passes over the training documents");
  app.add_option("--max-steps", o.max_steps, "number of updates, whatever --epochs says; 0 = by epochs");
  app.add_option("--ttt-steps", o.ttt_steps, "drafting steps trained through");
  app.add_option("--loss-fn", o.loss_fn,
                 "kl_div, rkl, jsd, ce, tv, nla, lk_hybrid, or weights as JSON: {\"ce\": 0.1, \"tv\": 0.9}");
  app.add_option("--ttt-step-loss-decay", o.ttt_step_loss_decay, "weight of step k is this to the power k");
  app.add_option("--lr", o.lr, "learning rate");
  app.add_option("--beta1", o.beta1, "AdamW");
  app.add_option("--beta2", o.beta2, "AdamW");
  app.add_option("--eps", o.eps, "AdamW");
  app.add_option("--weight-decay", o.weight_decay, "AdamW, on every parameter");
  app.add_option("--clip", o.clip, "largest gradient norm; 0 = no clipping");
  app.add_option("--scheduler-type", o.scheduler_type, "linear, cosine or none");
  app.add_option("--warmup-steps", o.warmup_steps, "steps from rate 0 to --lr; -1 = 1 % of the schedule");
  app.add_option("--scheduler-total-steps", o.scheduler_total_steps,
                 "where the schedule ends; 0 = with the run");
  app.add_option("--num-cosine-cycles", o.num_cosine_cycles, "0.5 decays once to the end");
  app.add_option("--min-lr-ratio", o.min_lr_ratio, "the decay ends at this share of --lr");
  app.add_option("--seed", o.seed, "new weights and the order of batches");
  app.add_option("--threads", o.threads, "0 = all cores");
}

void add_run_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--checkpoint-every-steps", o.checkpoint_every_steps, "0 = at each epoch's end");
  app.add_option("--validate-every-steps", o.validate_every_steps, "0 = at each epoch's end");
  app.add_option("--keep-checkpoints", o.keep_checkpoints, "newest kept, besides the best; 0 = all");
  app.add_option("--log-every-steps", o.log_every_steps, "a line and a record every n steps");
  app.add_flag("--no-resume", o.no_resume, "fail when the output directory has checkpoints");
  app.add_option("--resume-from", o.resume_from,
                 "go on from this checkpoint instead of the newest whole one");
  app.add_flag("--start-over", o.start_over, "set an earlier run in the directory aside and begin at step 0");
  app.add_flag("--allow-missing-optimizer", o.allow_missing_optimizer,
               "go on from a checkpoint that has no optimizer or trainer state");
}

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

Status run_train(TrainOptions& options, Context& context) {
  options.on_step_line = step_lines(context);
  EAGLET_ASSIGN_OR_RETURN(const TrainReport report, train(options, *context.progress));
  Json json = {{"schema", 1}, {"output_dir", options.output_dir}};
  json.update(train_json(report));
  write_whole(STDOUT_FILENO, context.json ? json.dump(2) + "\n" : report_text(report));
  return {};
}

}  // namespace

Run add_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  app.description("Train an EAGLE-3 draft on a state store.");
  app.footer(kExamples);
  app.option_defaults()->always_capture_default();
  add_data_flags(app, *options);
  add_draft_flags(app, *options);
  add_optimizer_flags(app, *options);
  add_run_flags(app, *options);
  return [options](Context& context) { return run_train(*options, context); };
}

}  // namespace eaglet::apps
