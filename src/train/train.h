#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "comm/comm.h"
#include "device/accelerator.h"
#include "store/store.h"

namespace eaglet {

/// Flags of `eaglet train`; names follow the field's usual ones (the flag is the member with dashes).
struct TrainOptions {
  std::string store_path, model_path, output_dir;  // states/, target GGUF, draft/
  std::string from;  // warm start: a draft directory (checkpoint, speculators, SpecForge)
  // max_steps 0: epochs decides; otherwise that many updates, whatever epochs says.
  std::int64_t epochs = 3, max_steps = 0, max_seq_len = 2048, ttt_steps = 3;
  std::int64_t draft_vocab_size = 0;  // 0 = full vocabulary (with `from`: that draft's)
  std::string vocab_map;  // a draft vocabulary to take instead of choosing one (docs/formats/vocab.md)
  std::string loss_fn = "kl_div";
  double ttt_step_loss_decay = 1.0;
  std::string ttt_step_weights;         // "1,0.5,0.25": weights of the drafting steps in place of the decay
  std::string teacher_vocab = "draft";  // draft | whole: what the teacher's probabilities are normalised over
  double row_sampling = 1;              // share of each document's start rows that a step unrolls
  std::string compute_type = "auto";    // auto | f32 | bf16: what training steps multiply in
  /// auto | load | stream: whether a batch's states are copied into memory or read chunk by chunk; auto
  /// streams from 512 MiB a batch on.
  std::string states = "auto";
  std::int64_t chunk_rows = 0;  // rows whose activations exist at once; 0: by ttt_steps
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.01, clip = 1.0;
  std::string optimizer = "adamw";  // adamw | muon (hidden matrices by Muon, the rest by AdamW)
  double muon_lr = 0;               // 0: lr
  double muon_momentum = 0.95, muon_weight_decay = 0.1;
  std::int64_t muon_ns_steps = 5;
  std::string muon_adjust_lr_fn = "match_rms_adamw";  // | original
  std::int64_t accumulation_steps = 1;                // batches of one rank in an update
  bool shard_optimizer = false;                       // each rank keeps a part of the moments (ZeRO-1)
  double noise_std = 0;                               // uniform noise of +- this on the captured states
  std::string scheduler_type = "cosine";              // linear | cosine | constant (none)
  std::int64_t warmup_steps = -1;                     // -1: by warmup_ratio
  double warmup_ratio = -1;                           // share of the schedule's steps; -1: 1 %
  std::int64_t scheduler_total_steps = 0;             // where the schedule ends; 0: with the run
  double num_cosine_cycles = 0.5;
  double min_lr_ratio = 0;
  bool train_head = true, train_embeddings = false;
  bool attention_bias = false, mlp_bias = false;
  std::int64_t hidden_size = 0;  // width of a new draft; 0: the target's
  bool norm_before_residual = false, norm_before_fc = false, fc_norm = false, norm_output = false;
  std::int64_t sliding_window = 0, num_layers = 1, intermediate_size = 0;  // 0: full attention / the target's
  std::vector<std::int64_t> sliding_layers;  // which layers (from 0) the window holds for; empty: all
  std::string draft_arch = "llama";          // llama | qwen3
  std::int64_t hold_out_every = 10;          // every n-th document (0, n, 2n, ...) is held out; 0 = none
  std::uint64_t seed = 42;
  int num_workers = 2, threads = 0;
  std::int64_t checkpoint_every_steps = 0;  // 0: at each epoch's end
  std::int64_t validate_every_steps = 0;    // 0: at each epoch's end
  std::int64_t keep_checkpoints = 0;        // newest kept, besides best; 0 = all
  std::int64_t log_every_steps = 1;
  bool no_resume = false;   // refuse to go on from checkpoints found; start anew only in an empty directory
  std::string resume_from;  // go on from this checkpoint (name or path); empty: the newest whole one
  bool start_over = false;  // set what an earlier run left aside (previous-N/) and begin at step 0
  bool allow_missing_optimizer = false;
  std::string max_time;                  // "90m", "2h", "300" seconds: save and end then; empty: no limit
  std::int64_t early_stop_patience = 0;  // end after so many validations without a best; 0: never
  std::string on_not_finite = "stop";    // stop | skip
  bool online = false;                   // states from the target while training, without a store
  std::string conversations_path;        // with online
  std::vector<std::int32_t> target_layer_ids;  // with online; empty: the usual ones
  std::string target_weights = "auto";         // with online: auto | stored | f16 | f32
  /// Opens what is trained on; empty: the store at store_path.
  std::function<Result<std::unique_ptr<StoreReader>>()> open_store;
  Comm* comm = nullptr;           // the ranks of this run; nullptr: one
  Accelerator* device = nullptr;  // where steps run; nullptr: this machine's processor
  /// Gets a line for people per logged step (the command prints it on stdout); may be empty.
  std::function<void(const std::string&)> on_step_line;
};

struct TrainReport {
  std::int64_t steps = 0, total_steps = 0,
               resumed_from_step = -1;           // steps: finished in all, earlier runs included
  std::string last_checkpoint, best_checkpoint;  // directories
  double first_loss = 0, last_loss = 0,
         held_out_acceptance_length = 0;      // the last validation; 0 = none was made
  std::vector<double> held_out_full_acc;      // by depth, inside the draft vocabulary
  double seconds = 0, tokens_per_second = 0;  // this run, real tokens
  std::int64_t real_tokens = 0;               // of one epoch
  std::int64_t trainable_params = 0, total_params = 0;
  std::string compute_type;          // f32 | bf16
  std::string device;                // "cpu", or the accelerator's name
  std::int64_t skipped_updates = 0;  // not finite, left out
  int ranks = 1;
  double needed_flops = 0;     // arithmetic of this run's updates
  double rank_wait_share = 0;  // of this run's time, waiting for other ranks
};

/// Trains a draft on a state store (docs/training.md). Holds the output directory's lock; resumes from the
/// newest whole checkpoint found there. kInterrupted after a signal: a checkpoint was written first. With
/// several ranks all call it with the same options; rank 0 writes.
Result<TrainReport> train(const TrainOptions& options, Progress& progress);

}  // namespace eaglet
