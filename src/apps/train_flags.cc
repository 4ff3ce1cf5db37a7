#include "apps/train_flags.h"

namespace eaglet::apps {
namespace {

void add_data_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--store,--states,--store-path", o.store_path, "state store, from eaglet extract");
  app.add_flag("--online", o.online, "no store: the target makes the states while training");
  app.add_option("--conversations", o.conversations_path, "what to train on with --online");
  app.add_option("--target-layer-ids", o.target_layer_ids,
                 "captured layers with --online; default: 2, L/2, L-3")
      ->delimiter(',');
  app.add_option("--target-weights", o.target_weights,
                 "how the target computes with --online: auto, stored, f16, f32");
  app.add_option("--model,--model-path", o.model_path, "the target the states came from (GGUF)")->required();
  app.add_option("--output-dir", o.output_dir, "checkpoints and records go here")->required();
  app.add_option("--hold-out-every", o.hold_out_every,
                 "hold out every n-th document, from the first, for validation; 0 = none");
  app.add_option("--max-seq-len", o.max_seq_len,
                 "rows of a batch: documents are packed into it, longer ones cut");
  app.add_option(
      "--state-reading", o.states,
      "load a batch's states, or stream them chunk by chunk (long documents); auto streams from 512 "
      "MiB a batch on");
  app.add_option("--num-workers", o.num_workers, "threads that read and pack batches ahead");
}

void add_draft_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("--from", o.from, "warm start from a draft directory (ours, speculators, SpecForge)");
  app.add_option(
      "--vocab-map", o.vocab_map,
      "a draft vocabulary to take (eaglet vocab, or another tool's); refused when it is for other data");
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
  app.add_option("--hidden-size", o.hidden_size, "width of a new draft; 0 = the target's");
  app.add_flag("--attention-bias,!--no-attention-bias", o.attention_bias, "biases on q, k, v and o");
  app.add_flag("--mlp-bias,!--no-mlp-bias", o.mlp_bias, "biases in the MLP");
  app.add_flag("--train-embeddings,!--no-train-embeddings", o.train_embeddings,
               "train the draft's own embeddings, from a copy of the target's");
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
  app.add_option("--ttt-step-weights", o.ttt_step_weights,
                 "weights of the drafting steps instead: 1,0.5,0.25");
  app.add_option(
      "--teacher-vocab", o.teacher_vocab,
      "the teacher's probabilities add up to 1 over the draft's vocabulary (draft) or the whole one "
      "(whole: rows whose mass lies outside weigh less)");
  app.add_option("--row-sampling", o.row_sampling,
                 "share of each document's start rows that a step unrolls: cost falls with it; 1 = all");
  app.add_option("--compute-type", o.compute_type,
                 "what training steps multiply in: f32, bf16, or auto, the faster here");
  app.add_option("--chunk-rows", o.chunk_rows,
                 "rows whose activations exist at once, for long sequences; 0 = by --ttt-steps");
  app.add_option("--lr", o.lr, "learning rate");
  app.add_option("--beta1", o.beta1, "AdamW");
  app.add_option("--beta2", o.beta2, "AdamW");
  app.add_option("--eps", o.eps, "AdamW");
  app.add_option("--weight-decay", o.weight_decay, "AdamW, on every parameter");
  app.add_option("--clip", o.clip, "largest gradient norm; 0 = no clipping");
  app.add_option("--optimizer", o.optimizer, "adamw, or muon for the hidden matrices and AdamW for the rest");
  app.add_option("--muon-lr", o.muon_lr, "Muon's rate; 0 = --lr");
  app.add_option("--muon-momentum", o.muon_momentum, "Muon");
  app.add_option("--muon-weight-decay", o.muon_weight_decay, "Muon");
  app.add_option("--muon-ns-steps", o.muon_ns_steps, "Newton-Schulz iterations");
  app.add_option("--muon-adjust-lr-fn", o.muon_adjust_lr_fn,
                 "match_rms_adamw (updates as large as AdamW's) or original");
  app.add_option("--accumulation-steps", o.accumulation_steps, "batches a rank puts into one update");
  app.add_flag("--shard-optimizer", o.shard_optimizer,
               "with several ranks: each keeps a part of the optimizer's memory (ZeRO-1)");
  app.add_option("--noise-std", o.noise_std,
                 "uniform noise of +- this on the captured states while training; 0 = none");
  app.add_option("--scheduler-type", o.scheduler_type, "linear, cosine, or constant (also called none)");
  app.add_option("--warmup-steps", o.warmup_steps, "steps from rate 0 to --lr; -1 = 1 % of the schedule");
  app.add_option("--warmup-ratio", o.warmup_ratio,
                 "the same as a share of the schedule's steps; -1 = not set");
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
  app.add_option("--max-time", o.max_time,
                 "save and end after 300 (seconds), 90m, 2h, 1d; default: no limit");
  app.add_option("--early-stop-patience", o.early_stop_patience,
                 "end after so many validations without a better acceptance length; 0 = never");
  app.add_option("--on-not-finite", o.on_not_finite,
                 "a loss or gradient that is not finite: stop, or skip the update (counted)");
  app.add_flag("--no-resume", o.no_resume, "fail when the output directory has checkpoints");
  app.add_option("--resume-from", o.resume_from,
                 "go on from this checkpoint instead of the newest whole one");
  app.add_flag("--start-over", o.start_over, "set an earlier run in the directory aside and begin at step 0");
  app.add_flag("--allow-missing-optimizer", o.allow_missing_optimizer,
               "go on from a checkpoint that has no optimizer or trainer state");
}

}  // namespace

void add_train_flags(CLI::App& app, TrainOptions& options) {
  add_data_flags(app, options);
  add_draft_flags(app, options);
  add_optimizer_flags(app, options);
  add_run_flags(app, options);
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
