#include "apps/train_flags.h"

#include "apps/train_setting_table.h"

namespace eaglet::apps {
namespace {

// Where a run reads and writes: not a recipe's to say.
void add_place_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--store,--states,--store-path", o.store_path, "state store, from eaglet extract");
  app.add_flag("--online", o.online, "no store: the target makes the states while training");
  app.add_option("--conversations", o.conversations_path, "what to train on with --online");
  app.add_option("--target-layer-ids", o.target_layer_ids,
                 "captured layers with --online; default: 2, L/2, L-3")
      ->delimiter(',');
  app.add_option("--target-weights", o.target_weights,
                 "how the target computes with --online: auto, stored, f16, f32");
  app.add_option("--model,--model-path", o.model_path, "the target the states came from (GGUF or folder)")
      ->required();
  app.add_option("--output-dir", o.output_dir, "checkpoints and records go here")->required();
}

// How this one start of the program goes about it.
void add_start_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--threads", o.threads, "0 = all cores");
  app.add_flag("--shard-optimizer", o.shard_optimizer,
               "with several ranks: each keeps a part of the optimizer's memory (ZeRO-1)");
  app.add_flag("--no-resume", o.no_resume, "fail when the output directory has checkpoints");
  app.add_option("--resume-from", o.resume_from,
                 "go on from this checkpoint instead of the newest whole one");
  app.add_flag("--start-over", o.start_over, "set an earlier run in the directory aside and begin at step 0");
  app.add_flag("--allow-missing-optimizer", o.allow_missing_optimizer,
               "go on from a checkpoint that has no optimizer or trainer state");
}

}  // namespace

void add_train_flags(CLI::App& app, TrainOptions& options) {
  add_place_flags(app, options);
  add_flags(app, train_setting_table(options));
  add_start_flags(app, options);
}

ExtractOptions online_options(const TrainOptions& options) {
  ExtractOptions extract;
  extract.model_path = options.model_path;
  extract.conversations_path = options.conversations_path;
  extract.target_layer_ids = options.target_layer_ids;
  extract.weights = options.target_weights;
  extract.threads = options.threads;
  return extract;
}

}  // namespace eaglet::apps
