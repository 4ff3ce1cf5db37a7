#include "train/train_settings.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "base/hash.h"
#include "draft/draft_model.h"

namespace eaglet {
namespace {

Status usage(const std::string& flag, const std::string& what, const std::string& todo) {
  return Status(StatusCode::kUsage, what, flag, todo);
}

Status check_counts(const TrainOptions& o) {
  if (o.epochs < 1 && o.max_steps < 1)
    return usage("--epochs", "nothing to do: 0 epochs and no --max-steps", "give 1 or more");
  if (o.max_steps < 0) return usage("--max-steps", "negative", "give 0 (no limit) or more");
  if (o.max_seq_len < 2)
    return usage("--max-seq-len", fmt::format("{} rows cannot hold a document", o.max_seq_len),
                 "give 2 or more; 2048 is usual");
  if (o.ttt_steps < 1 || o.ttt_steps > 64) return usage("--ttt-steps", "must be 1 to 64", "3 is usual");
  if (o.num_layers < 1) return usage("--num-layers", "must be 1 or more", "1 is what servers load");
  if (o.draft_vocab_size < 0)
    return usage("--draft-vocab-size", "negative", "give 0 for the full vocabulary");
  if (o.hold_out_every < 0 || o.hold_out_every == 1)
    return usage("--hold-out-every", "1 would hold out every document",
                 "give 0 (none) or 2 and more; 10 is usual");
  if (o.num_workers < 1) return usage("--num-workers", "at least one thread must read batches", "2 is usual");
  for (const std::int64_t layer : o.sliding_layers)
    if (o.sliding_window < 1 || layer < 0 || layer >= o.num_layers)
      return usage("--sliding-layers", fmt::format("layer {} cannot have the window", layer),
                   fmt::format("give --sliding-window too, and layers of 0 to {}", o.num_layers - 1));
  for (const auto& [flag, value] :
       {std::pair{"--sliding-window", o.sliding_window},
        std::pair{"--intermediate-size", o.intermediate_size}, std::pair{"--hidden-size", o.hidden_size},
        std::pair{"--chunk-rows", o.chunk_rows},
        std::pair{"--checkpoint-every-steps", o.checkpoint_every_steps},
        std::pair{"--validate-every-steps", o.validate_every_steps},
        std::pair{"--keep-checkpoints", o.keep_checkpoints}, std::pair{"--threads", std::int64_t{o.threads}},
        std::pair{"--scheduler-total-steps", o.scheduler_total_steps}})
    if (value < 0) return usage(flag, "negative", "give 0 or more");
  if (o.accumulation_steps < 1)
    return usage("--accumulation-steps", "must be 1 or more", "1 updates after every batch");
  if (o.early_stop_patience < 0) return usage("--early-stop-patience", "negative", "give 0 for never");
  if (o.muon_ns_steps < 1 || o.muon_ns_steps > 20)
    return usage("--muon-ns-steps", "must be 1 to 20", "5 is usual");
  if (o.log_every_steps < 1) return usage("--log-every-steps", "must be 1 or more", "1 logs every step");
  return {};
}

Status check_rates(const TrainOptions& o) {
  if (!(o.lr > 0) || !std::isfinite(o.lr))
    return usage("--lr", "must be above 0", "1e-3 for a new draft, 1e-4 after --from");
  for (const auto& [flag, value] : {std::pair{"--beta1", o.beta1}, std::pair{"--beta2", o.beta2}})
    if (!(value >= 0 && value < 1))
      return usage(flag, "must be at least 0 and below 1", "0.9 and 0.95 are usual");
  if (!(o.eps > 0)) return usage("--eps", "must be above 0", "1e-8 is usual");
  if (!(o.weight_decay >= 0)) return usage("--weight-decay", "negative", "0.01 is usual");
  if (!(o.clip >= 0)) return usage("--clip", "negative", "give 0 for no clipping; 1.0 is usual");
  if (!(o.min_lr_ratio >= 0 && o.min_lr_ratio <= 1))
    return usage("--min-lr-ratio", "must be 0 to 1", "0 is usual");
  if (!(o.ttt_step_loss_decay > 0))
    return usage("--ttt-step-loss-decay", "must be above 0", "1.0 weighs all steps alike");
  if (!(o.row_sampling > 0 && o.row_sampling <= 1))
    return usage("--row-sampling", "must be above 0 and at most 1", "1 unrolls every row");
  if (!(o.muon_lr >= 0) || !std::isfinite(o.muon_lr))
    return usage("--muon-lr", "negative", "give 0 to use --lr");
  if (!(o.muon_momentum >= 0 && o.muon_momentum < 1))
    return usage("--muon-momentum", "must be at least 0 and below 1", "0.95 is usual");
  if (!(o.muon_weight_decay >= 0)) return usage("--muon-weight-decay", "negative", "0.1 is usual");
  if (!(o.noise_std >= 0) || !std::isfinite(o.noise_std))
    return usage("--noise-std", "negative", "give 0 for none");
  if (o.warmup_ratio != -1 && !(o.warmup_ratio >= 0 && o.warmup_ratio < 1))
    return usage("--warmup-ratio", "must be at least 0 and below 1", "0.01 is usual");
  if (o.warmup_ratio >= 0 && o.warmup_steps >= 0)
    return usage("--warmup-ratio", "excludes --warmup-steps: both say how long", "give one of them");
  if (!(o.num_cosine_cycles > 0))
    return usage("--num-cosine-cycles", "must be above 0", "0.5 decays once to 0");
  return {};
}

Status check_step_weights(const TrainOptions& o) {
  if (o.ttt_step_weights.empty()) return {};
  const auto weights = numbers_of(o.ttt_step_weights);
  if (!weights) return usage("--ttt-step-weights", "not a list of numbers", "write 1,0.5,0.25");
  double sum = 0;
  for (const double weight : *weights) {
    if (!(weight >= 0) || !std::isfinite(weight))
      return usage("--ttt-step-weights", fmt::format("{} is no weight", weight), "give 0 or more");
    sum += weight;
  }
  if (static_cast<std::int64_t>(weights->size()) != o.ttt_steps)
    return usage("--ttt-step-weights",
                 fmt::format("{} weights for {} drafting steps", weights->size(), o.ttt_steps),
                 "give one for each of --ttt-steps");
  if (sum == 0) return usage("--ttt-step-weights", "all weights are 0", "give at least one above 0");
  if (o.ttt_step_loss_decay != 1)
    return usage("--ttt-step-weights", "excludes --ttt-step-loss-decay: both weigh the steps",
                 "give one of them");
  return {};
}

Status check_names(const TrainOptions& o) {
  if (o.online && o.conversations_path.empty())
    return usage("--online", "no conversations given", "say with --conversations what to train on");
  if (o.online && !o.store_path.empty())
    return usage("--online", "excludes --store: states come from the target or from a store", "choose one");
  if (!o.online && !o.conversations_path.empty())
    return usage("--conversations", "is for --online", "add --online, or give the --store made from them");
  if (!o.online && o.store_path.empty())
    return usage("--store", "no state store given", "eaglet extract makes one");
  if (o.model_path.empty())
    return usage("--model", "no target model given", "give the GGUF the states came from");
  if (o.output_dir.empty())
    return usage("--output-dir", "no output directory given", "name a directory for this run");
  if (o.draft_arch != "llama" && o.draft_arch != "qwen3")
    return usage("--draft-arch", "unknown architecture \"" + o.draft_arch + "\"", "use llama or qwen3");
  if (o.norm_before_fc && o.fc_norm)
    return usage("--norm-before-fc", "excludes --fc-norm: both norm the captured states", "choose one");
  const int ways = int{o.no_resume} + int{o.start_over} + int{!o.resume_from.empty()};
  if (ways > 1)
    return usage("--no-resume", "only one of --no-resume, --start-over and --resume-from", "choose one");
  if (o.optimizer != "adamw" && o.optimizer != "muon")
    return usage("--optimizer", "unknown optimizer \"" + o.optimizer + "\"", "use adamw or muon");
  if (o.muon_adjust_lr_fn != "match_rms_adamw" && o.muon_adjust_lr_fn != "original")
    return usage("--muon-adjust-lr-fn", "unknown rule \"" + o.muon_adjust_lr_fn + "\"",
                 "use match_rms_adamw or original");
  if (o.on_not_finite != "stop" && o.on_not_finite != "skip")
    return usage("--on-not-finite", "unknown choice \"" + o.on_not_finite + "\"", "use stop or skip");
  if (!o.max_time.empty() && !seconds_of(o.max_time))
    return usage("--max-time", "\"" + o.max_time + "\" is no duration", "write 300 (seconds), 90m, 2h or 1d");
  EAGLET_RETURN_IF_ERROR(parse_schedule_kind(o.scheduler_type).status());
  if (o.teacher_vocab != "draft" && o.teacher_vocab != "whole")
    return usage("--teacher-vocab", "unknown choice \"" + o.teacher_vocab + "\"", "use draft or whole");
  if (o.compute_type != "auto" && !parse_compute_type(o.compute_type).ok())
    return usage("--compute-type", "unknown type \"" + o.compute_type + "\"", "use auto, f32 or bf16");
  if (o.states != "auto" && o.states != "load" && o.states != "stream")
    return usage("--state-reading", "unknown choice \"" + o.states + "\"", "use auto, load or stream");
  EAGLET_RETURN_IF_ERROR(check_step_weights(o));
  const auto loss = parse_loss(o.loss_fn);
  if (!loss.ok()) return Status(StatusCode::kUsage, loss.status().what(), "--loss-fn", loss.status().todo());
  return {};
}

}  // namespace

Status check_train_options(const TrainOptions& options) {
  EAGLET_RETURN_IF_ERROR(check_names(options));
  EAGLET_RETURN_IF_ERROR(check_counts(options));
  return check_rates(options);
}

std::int64_t batches_per_update(const TrainOptions& options) {
  return options.accumulation_steps * (options.comm != nullptr ? options.comm->ranks() : 1);
}

std::optional<double> seconds_of(const std::string& duration) {
  double value = 0;
  const char* end = duration.data() + duration.size();
  const auto parsed = std::from_chars(duration.data(), end, value);
  if (parsed.ec != std::errc() || !(value > 0)) return std::nullopt;
  const std::string unit(parsed.ptr, end);
  for (const auto& [name, seconds] : {std::pair{"", 1.0}, std::pair{"s", 1.0}, std::pair{"m", 60.0},
                                      std::pair{"h", 3600.0}, std::pair{"d", 86400.0}})
    if (unit == name) return value * seconds;
  return std::nullopt;
}

std::optional<std::vector<double>> numbers_of(const std::string& list) {
  std::vector<double> numbers;
  const char *at = list.data(), *end = at + list.size();
  while (true) {
    double value = 0;
    const auto parsed = std::from_chars(at, end, value);
    if (parsed.ec != std::errc()) return std::nullopt;
    numbers.push_back(value);
    if (parsed.ptr == end) return numbers;
    if (*parsed.ptr != ',') return std::nullopt;
    at = parsed.ptr + 1;
  }
}

TttOptions ttt_options(const TrainOptions& o, ComputeType compute_type) {
  TttOptions options;
  options.ttt_steps = static_cast<int>(o.ttt_steps);
  options.losses = *parse_loss(o.loss_fn);
  options.step_decay = o.ttt_step_loss_decay;
  if (!o.ttt_step_weights.empty()) options.step_weights = *numbers_of(o.ttt_step_weights);
  options.teacher_vocab = o.teacher_vocab == "whole" ? TeacherVocab::kWhole : TeacherVocab::kDraft;
  options.row_sampling = o.row_sampling;
  options.compute_type = compute_type;
  options.chunk_rows = o.chunk_rows;
  return options;
}

OptimizerOptions optimizer_options(const TrainOptions& o) {
  OptimizerOptions options;
  options.use_muon = o.optimizer == "muon";
  options.adamw = {o.beta1, o.beta2, o.eps, o.weight_decay};
  options.muon.momentum = o.muon_momentum;
  options.muon.weight_decay = o.muon_weight_decay;
  options.muon.ns_steps = static_cast<int>(o.muon_ns_steps);
  options.muon.rate = o.muon_adjust_lr_fn == "original" ? MuonRate::kOriginal : MuonRate::kMatchRmsAdamw;
  options.muon_lr_ratio = o.muon_lr > 0 ? o.muon_lr / o.lr : 1.0;
  return options;
}

std::string store_fingerprint(const StoreReader& store) {
  const StoreHeader& header = store.header();
  std::string text =
      fmt::format("{} {} {} {} {}\n", header.target_identity, header.hidden, header.target_layers,
                  fmt::join(header.aux_layers, ","), dtype_name(header.dtype));
  for (const StoredDocument& document : store.documents())
    text += fmt::format("{} {} {}\n", document.id, document.tokens, document.supervised_tokens);
  return hex64(xxh64(text));
}

Json fixed_settings(const TrainOptions& o, const EffectiveSettings& effective) {
  Json json;
  json["target_identity"] = effective.target_identity;
  json["store_fingerprint"] = effective.store_fingerprint;
  json["hold_out_every"] = o.hold_out_every;
  json["max_seq_len"] = o.max_seq_len;
  json["ttt_steps"] = o.ttt_steps;
  json["ttt_step_loss_decay"] = o.ttt_step_loss_decay;
  json["ttt_step_weights"] = o.ttt_step_weights;
  json["loss_fn"] = o.loss_fn;
  json["teacher_vocab"] = o.teacher_vocab;
  json["row_sampling"] = o.row_sampling;
  json["compute_type"] = compute_type_name(effective.compute_type);
  json["chunk_rows"] = o.chunk_rows;
  json["draft_vocab_size"] = effective.draft_vocab_size;
  json["vocab_map"] = o.vocab_map;
  json["draft_arch"] = o.draft_arch;
  json["num_layers"] = o.num_layers;
  json["intermediate_size"] = effective.intermediate_size;
  json["sliding_window"] = o.sliding_window;
  json["sliding_layers"] = o.sliding_layers;
  json["norm_before_residual"] = o.norm_before_residual;
  json["norm_before_fc"] = o.norm_before_fc;
  json["fc_norm"] = o.fc_norm;
  json["norm_output"] = o.norm_output;
  json["train_head"] = o.train_head;
  json["train_embeddings"] = o.train_embeddings;
  json["attention_bias"] = o.attention_bias;
  json["mlp_bias"] = o.mlp_bias;
  json["hidden_size"] = o.hidden_size;
  json["lr"] = o.lr;
  json["beta1"] = o.beta1;
  json["beta2"] = o.beta2;
  json["eps"] = o.eps;
  json["weight_decay"] = o.weight_decay;
  json["clip"] = o.clip;
  json["scheduler_type"] = o.scheduler_type;
  json["warmup_steps"] = effective.schedule.warmup_steps;
  // A rate that never changes has no horizon: such a run may be made longer.
  const bool horizon = effective.schedule.kind != Schedule::Kind::kNone;
  json["scheduler_total_steps"] = horizon ? effective.schedule.total_steps : 0;
  json["num_cosine_cycles"] = o.num_cosine_cycles;
  json["min_lr_ratio"] = o.min_lr_ratio;
  json["seed"] = o.seed;
  json["batches_per_update"] = effective.batches_per_update;
  json["noise_std"] = o.noise_std;
  json["optimizer"] = o.optimizer;
  const bool muon = o.optimizer == "muon";  // with AdamW these fix nothing
  json["muon_lr"] = muon ? (o.muon_lr > 0 ? o.muon_lr : o.lr) : 0.0;
  json["muon_momentum"] = muon ? o.muon_momentum : 0.0;
  json["muon_weight_decay"] = muon ? o.muon_weight_decay : 0.0;
  json["muon_ns_steps"] = muon ? o.muon_ns_steps : 0;
  json["muon_adjust_lr_fn"] = muon ? o.muon_adjust_lr_fn : "";
  return json;
}

// What a run did that was begun before a setting existed.
static Json settings_of_older_runs() {
  return {{"batches_per_update", 1},  {"noise_std", 0.0},          {"optimizer", "adamw"},
          {"muon_lr", 0.0},           {"muon_momentum", 0.0},      {"muon_weight_decay", 0.0},
          {"muon_ns_steps", 0},       {"muon_adjust_lr_fn", ""},   {"ttt_step_weights", ""},
          {"teacher_vocab", "draft"}, {"row_sampling", 1.0},       {"compute_type", "f32"},
          {"chunk_rows", 0},          {"train_embeddings", false}, {"attention_bias", false},
          {"mlp_bias", false},        {"hidden_size", 0},          {"sliding_layers", Json::array()}};
}

Json train_flags(const TrainOptions& o, const EffectiveSettings& effective) {
  Json json;
  json["store_path"] = o.store_path;
  json["online"] = o.online;
  json["conversations_path"] = o.conversations_path;
  json["model_path"] = o.model_path;
  json["output_dir"] = o.output_dir;
  json["from"] = o.from;
  json["epochs"] = o.epochs;
  json["max_steps"] = o.max_steps;
  json.update(fixed_settings(o, effective));
  json["scheduler_total_steps"] = effective.schedule.total_steps;
  json["num_workers"] = o.num_workers;
  json["state_reading"] = o.states;
  json["threads"] = effective.threads;
  json["device"] = effective.device;
  json["checkpoint_every_steps"] = o.checkpoint_every_steps;
  json["validate_every_steps"] = o.validate_every_steps;
  json["keep_checkpoints"] = o.keep_checkpoints;
  json["log_every_steps"] = o.log_every_steps;
  json["no_resume"] = o.no_resume;
  json["resume_from"] = o.resume_from;
  json["start_over"] = o.start_over;
  json["allow_missing_optimizer"] = o.allow_missing_optimizer;
  json["accumulation_steps"] = o.accumulation_steps;
  json["ranks"] = o.comm != nullptr ? o.comm->ranks() : 1;
  json["shard_optimizer"] = o.shard_optimizer;
  json["warmup_ratio"] = o.warmup_ratio;
  json["max_time"] = o.max_time;
  json["early_stop_patience"] = o.early_stop_patience;
  json["on_not_finite"] = o.on_not_finite;
  return json;
}

Status check_same_settings(const Json& known, const Json& now) {
  Json before = settings_of_older_runs();
  before.update(known);
  std::string differences;
  for (const auto& [name, value] : now.items()) {
    const auto it = before.find(name);
    if (it != before.end() && *it == value) continue;
    const std::string then = it == before.end() ? "not set" : json_line(*it);
    differences +=
        fmt::format("{}{}: {} then, {} now", differences.empty() ? "" : "; ", name, then, json_line(value));
  }
  if (differences.empty()) return {};
  return Status(StatusCode::kConfig, "this run was begun with other settings (" + differences + ")", {},
                "give the same settings to go on; or begin a new run in another --output-dir, with --from "
                "<checkpoint> to keep the weights");
}

}  // namespace eaglet
