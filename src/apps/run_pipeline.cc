#include "apps/run_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/evaluate_json.h"
#include "apps/keep_states.h"
#include "apps/open_device.h"
#include "apps/run_last_stages.h"
#include "apps/stage_json.h"
#include "apps/suggest.h"
#include "apps/train_on_ranks.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "draft/draft_weights.h"
#include "formats/conversations.h"
#include "formats/target_model.h"
#include "generate/prepare.h"

namespace eaglet::apps {
namespace {

const std::vector<std::string>& stage_names() {
  static const std::vector<std::string> names = {"generate", "extract", "train",
                                                 "evaluate", "export",  "serve"};
  return names;
}

Result<std::string> content_fingerprint(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  return hex64(xxh64(file.data(), file.bytes()));
}

Status copy_file(const std::string& from, const std::string& to) {
  EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(from));
  EAGLET_ASSIGN_OR_RETURN(AtomicFile copy, AtomicFile::create(to));
  EAGLET_RETURN_IF_ERROR(copy.write(file.data(), file.bytes()));
  return copy.commit();
}

}  // namespace

Status RunPipeline::run() {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts target, read_target_facts(recipe_.model_path));
  model_identity_ = target.identity;
  progress_.note(fmt::format("target: {} ({}, {} layers, width {}, vocabulary {})", target.name,
                             target.architecture, target.num_layers, target.hidden, target.vocab));
  // What the last stages would trip over after hours is said now.
  EAGLET_ASSIGN_OR_RETURN(form_, run_form(recipe_));
  where_ = recipe_.where;
  EAGLET_RETURN_IF_ERROR(settle(&where_).at("[run] of the recipe"));
  if (recipe_.train.draft_vocab_size > target.vocab)
    return Status(StatusCode::kConfig,
                  fmt::format("the draft vocabulary ({}) is larger than the target's ({})",
                              recipe_.train.draft_vocab_size, target.vocab),
                  "train.draft_vocab_size", "give at most the target's size, or 0 for all of it");
  EAGLET_RETURN_IF_ERROR(recipe_.conversations_path.empty() ? generate_answers() : take_conversations());
  EAGLET_RETURN_IF_ERROR(extract_states());
  EAGLET_RETURN_IF_ERROR(train_draft());
  EAGLET_RETURN_IF_ERROR(evaluate_draft());
  EAGLET_RETURN_IF_ERROR(drop_states());
  EAGLET_RETURN_IF_ERROR(export_draft());
  return recipe_.serve_enabled ? serve_draft() : Status();
}

Status RunPipeline::do_stage(const Stage& stage, const Work& work) {
  const std::size_t stages = stage_names().size() - (recipe_.serve_enabled ? 0 : 1);
  const std::string title = fmt::format("[{}/{}] {}", ++stage_number_, stages, stage.name);
  StageRecord now;
  now.stage = stage.name;
  now.settings = stage.settings;
  now.inputs = stage.inputs;
  const std::string path = paths_.stage_record(stage.name);
  if (Result<StageRecord> before = read_stage_record(path); before.ok()) {
    const std::string difference = before->difference(now);
    if (difference.empty() && before->done && path_exists(stage.output)) {
      progress_.note(title + ": done earlier, kept");
      records_[stage.name] = *before;
      return {};
    }
    if (!difference.empty() && !stage.repeatable)
      return Status(StatusCode::kConfig,
                    "this run directory has a '" + stage.name + "' made otherwise: " + difference,
                    stage.output,
                    "undo the change, give another --output-dir, or throw that stage and all later ones away "
                    "with --redo " +
                        stage.name);
    if (difference.empty()) now.seconds = before->seconds;
  } else if (before.status().code() != StatusCode::kNotFound) {
    return before.status();
  }
  EAGLET_RETURN_IF_ERROR(write_stage_record(path, now));
  progress_.note(title);
  const double begun = monotonic_seconds();
  Result<Json> result = work();
  now.seconds += monotonic_seconds() - begun;
  if (!result.ok()) {
    // The stage's own failure matters more than that of noting the time it took.
    static_cast<void>(write_stage_record(path, now).ok());
    return result.status();
  }
  now.done = true;
  now.finished = wall_seconds();
  now.result = std::move(*result);
  records_[stage.name] = now;
  return write_stage_record(path, now);
}

Json RunPipeline::settings_of(const std::string& section, const std::vector<std::string>& without) const {
  Json settings = Json::object();
  for (const auto& [key, value] : recipe_.section_values(section))
    if (std::find(without.begin(), without.end(), key) == without.end()) settings[key] = value;
  return settings;
}

Status RunPipeline::generate_answers() {
  EAGLET_RETURN_IF_ERROR(copy_file(recipe_.prompts_path, paths_.prompts()).at("prompts"));
  EAGLET_ASSIGN_OR_RETURN(const std::string prompts, content_fingerprint(paths_.prompts()));
  const Stage stage = {.name = "generate",
                       .settings = settings_of("generate", unrelated_to_answers()),
                       .inputs = {{"prompts", prompts}, {"model", model_identity_}},
                       .output = paths_.conversations(),
                       // Answers of a server cost money: more prompts go on from those that are there, and
                       // other sampling is refused by the answers' own settings.
                       .repeatable = !recipe_.generate.servers.empty()};
  return do_stage(stage, [this]() -> Result<Json> {
    GenerateOptions options = recipe_.generate;
    options.model_path = recipe_.model_path;
    options.prompts_path = paths_.prompts();
    options.output_path = paths_.conversations();
    options.threads = recipe_.threads;
    StatesKeeper keeper;
    if (keeps_states()) EAGLET_RETURN_IF_ERROR(keeper.attach(states_options(), false, &options));
    EAGLET_ASSIGN_OR_RETURN(const GenerateReport report, generate(options, progress_));
    EAGLET_RETURN_IF_ERROR(keeper.finish().status());
    if (report.response_tokens == 0)
      return Status(StatusCode::kDataLoss, "all answers are empty: there is nothing to train on",
                    paths_.conversations(),
                    "look at the prompts and the model's chat template; then --redo generate");
    return generate_json(report);
  });
}

/// Keys of [generate] that answers do not depend on: how fast, from where.
std::vector<std::string> RunPipeline::unrelated_to_answers() const {
  std::vector<std::string> keys = {"parallel",    "server",  "api_key_env", "ca_file",   "memory",
                                   "concurrency", "timeout", "tries",       "wait_ready"};
  // What says nothing new: a run that was begun before they existed goes on.
  const GenerateOptions usual, &g = recipe_.generate;
  const std::pair<const char*, bool> newer[] = {{"engine", g.engine == usual.engine},
                                                {"compute_type", g.compute_type == usual.compute_type},
                                                {"tokenizer", g.tokenizer_path.empty()},
                                                {"top_k", g.top_k == usual.top_k},
                                                {"min_p", g.min_p == usual.min_p},
                                                {"repetition_penalty", g.repetition_penalty == 1},
                                                {"keep_states", true}};
  for (const auto& [key, is_usual] : newer)
    if (is_usual) keys.emplace_back(key);
  // Without a server the rest of its keys say nothing, and a run that was begun before they existed goes on.
  if (recipe_.generate.servers.empty())
    keys.insert(keys.end(), {"served_model", "server_kind", "expect_thinking", "regenerate", "cut",
                             "request_json", "chat_template"});
  return keys;
}

/// Token rows are copied; talks are rendered with the target's template.
Status RunPipeline::take_given_conversations() {
  EAGLET_ASSIGN_OR_RETURN(const bool tokens, has_token_rows(recipe_.conversations_path));
  if (tokens) return copy_file(recipe_.conversations_path, paths_.conversations());
  PrepareOptions options;
  options.inputs = {recipe_.conversations_path};
  options.output_path = paths_.conversations();
  options.model_path = recipe_.model_path;
  options.template_path = recipe_.generate.served.template_path;
  options.max_seq_len = recipe_.extract.max_seq_len;
  EAGLET_ASSIGN_OR_RETURN(const PrepareReport report, prepare(options, progress_));
  if (!report.left_out.empty())
    progress_.note(fmt::format("left out {} of {} conversations: {}", total_of(report.left_out), report.lines,
                               reasons_text(report.left_out)));
  return {};
}

Status RunPipeline::take_conversations() {
  EAGLET_ASSIGN_OR_RETURN(const std::string given, content_fingerprint(recipe_.conversations_path));
  const Stage stage = {.name = "generate",
                       .settings = {{"answers", "given"}},
                       .inputs = {{"conversations", given}},
                       .output = paths_.conversations()};
  return do_stage(stage, [this]() -> Result<Json> {
    EAGLET_RETURN_IF_ERROR(take_given_conversations());
    EAGLET_ASSIGN_OR_RETURN(const ConversationFile file, read_conversations(paths_.conversations()));
    GenerateReport report;
    report.broken_lines = static_cast<std::int64_t>(file.broken.size());
    for (const Conversation& row : file.conversations) {
      ++report.answered;
      ++(row.finish_reason == "length" ? report.cut_by_length : report.stopped);
      report.prompt_tokens += row.prompt_tokens();
      report.response_tokens += std::count(row.loss_mask.begin(), row.loss_mask.end(), 1);
    }
    if (report.response_tokens == 0)
      return Status(StatusCode::kDataLoss, "all answers are empty: there is nothing to train on",
                    recipe_.conversations_path, "give conversations with supervised tokens");
    for (const BrokenLine& line : file.broken)
      progress_.note(fmt::format("warning: {} line {}: {}; left out", recipe_.conversations_path, line.line,
                                 line.reason));
    return generate_json(report);
  });
}

/// How fast, and from which servers, says nothing about the states; that servers made them does.
Json RunPipeline::extract_settings() const {
  Json settings = settings_of(
      "extract", {"force", "spill", "shard_bytes", "server", "states_dir", "served_model", "server_kind",
                  "api_key_env", "ca_file", "concurrency", "timeout", "tries", "wait_ready", "wait_seconds"});
  if (!recipe_.extract.servers.empty()) settings["made_by"] = "servers";
  return settings;
}

ExtractOptions RunPipeline::states_options() const {
  ExtractOptions options = recipe_.extract;
  options.model_path = recipe_.model_path;
  options.conversations_path = paths_.conversations();
  options.store_path = paths_.states();
  options.threads = recipe_.threads;
  // What generating kept and what is still to be made are of one kind.
  if (keeps_states()) options.compute_type = recipe_.generate.compute_type;
  return options;
}

/// The target runs once: the native engine's states are kept while it answers.
bool RunPipeline::keeps_states() const {
  return recipe_.keep_states && recipe_.generate.servers.empty() && recipe_.extract.servers.empty() &&
         recipe_.extract.weights == "auto";
}

Status RunPipeline::extract_states() {
  EAGLET_ASSIGN_OR_RETURN(const std::string conversations, content_fingerprint(paths_.conversations()));
  // Freed states still count as made while nothing is left to do with them.
  const bool freed = path_exists(paths_.stages() + "/states-dropped");
  const Stage stage = {.name = "extract",
                       .settings = extract_settings(),
                       .inputs = {{"conversations", conversations}, {"model", model_identity_}},
                       .output = freed ? paths_.stages() + "/states-dropped" : paths_.states()};
  return do_stage(stage, [this]() -> Result<Json> {
    EAGLET_ASSIGN_OR_RETURN(const ExtractReport report, extract(states_options(), progress_));
    return extract_json(report);
  });
}

Result<Json> RunPipeline::train_here_or_on_ranks() {
  TrainOptions options = recipe_.train;
  options.model_path = recipe_.model_path;
  options.store_path = paths_.states();
  options.output_dir = paths_.draft();
  options.threads = recipe_.threads;
  options.shard_optimizer = recipe_.shard_optimizer;
  if (where_.ranks > 1) return train_on_ranks(where_, options, paths_.stages() + "/ranks.json", context_);
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<Accelerator> device, open_device(where_.device, progress_));
  options.device = device.get();
  EAGLET_ASSIGN_OR_RETURN(const TrainReport report, train(options, progress_));
  return train_json(report);
}

Status RunPipeline::train_draft() {
  const Stage stage = {
      .name = "train",
      .settings = settings_of("train", {"num_workers", "log_every_steps", "keep_checkpoints"}),
      .inputs = {{"states", records_["extract"].fingerprint()}, {"model", model_identity_}},
      .output = paths_.draft() + "/checkpoints"};
  EAGLET_RETURN_IF_ERROR(do_stage(stage, [this]() -> Result<Json> {
    if (!path_exists(paths_.states()))
      return Status(StatusCode::kNotFound,
                    "the states were freed (drop_states), and the draft is to be trained again",
                    paths_.states(), "eaglet run --redo extract ... makes them again");
    EAGLET_ASSIGN_OR_RETURN(Json json, train_here_or_on_ranks());
    for (const char* key : {"last_checkpoint", "best_checkpoint"})  // so that a run directory can be moved
      if (json[key] != "")
        json[key] = std::filesystem::proximate(json[key].get<std::string>(), paths_.root).string();
    return json;
  }));
  const Json& result = records_["train"].result;
  checkpoint_ = result.value(recipe_.checkpoint == "best" ? "best_checkpoint" : "last_checkpoint", "");
  if (checkpoint_.empty())
    checkpoint_ = result.value("last_checkpoint", "");  // nothing held out: no best one
  if (!checkpoint_.empty() && path_exists(inside(checkpoint_))) return {};
  return Status(StatusCode::kNotFound, "training left no checkpoint", inside(checkpoint_),
                "give at least one epoch");
}

Status RunPipeline::evaluate_draft() {
  Json settings = settings_of("evaluate", {});
  settings["hold_out_every"] = std::to_string(recipe_.train.hold_out_every);
  const Stage stage = {.name = "evaluate",
                       .settings = settings,
                       .inputs = {{"train", records_["train"].fingerprint()}, {"checkpoint", checkpoint_}},
                       .output = inside(checkpoint_),
                       .repeatable = true};
  return do_stage(stage, [this]() -> Result<Json> {
    EvaluateOptions options = recipe_.evaluate;
    options.model_path = recipe_.model_path;
    options.store_path = paths_.states();
    options.draft_path = inside(checkpoint_);
    options.hold_out_every = recipe_.train.hold_out_every;
    options.threads = recipe_.threads;
    EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<Accelerator> device,
                            open_device(recipe_.where.device, progress_));
    options.device = device.get();
    EAGLET_ASSIGN_OR_RETURN(const EvaluateReport report, evaluate(options, progress_));
    return evaluate_json(report);
  });
}

Status RunPipeline::drop_states() {
  if (!recipe_.drop_states || !path_exists(paths_.states())) return {};
  LoadReport loaded;
  const Result<DraftWeights> draft = read_draft(inside(checkpoint_), recipe_.train.train_head, &loaded);
  if (!draft.ok()) return draft.status().at("checking the checkpoint before the states are freed");
  if (!loaded.missing.empty())
    return Status(StatusCode::kDataLoss,
                  "the checkpoint lacks " + loaded.missing.front().name + ": the states are kept",
                  inside(checkpoint_), "eaglet run --redo train ...");
  EAGLET_RETURN_IF_ERROR(write_file_atomic(paths_.stages() + "/states-dropped", checkpoint_ + "\n"));
  EAGLET_RETURN_IF_ERROR(remove_all(paths_.states()));
  progress_.note("states freed: " + human_bytes(records_["extract"].result.value("state_bytes", 0.0)) +
                 " (the checkpoint was read back first)");
  return {};
}

Status RunPipeline::export_draft() {
  const Stage stage = {.name = "export",
                       .settings = settings_of("export", {}),
                       .inputs = {{"train", records_["train"].fingerprint()}, {"checkpoint", checkpoint_}},
                       .output = inside(form_.draft),
                       .repeatable = true};
  return do_stage(
      stage, [this] { return export_for_run(recipe_, form_, paths_.root, inside(checkpoint_), progress_); });
}

Status RunPipeline::serve_draft() {
  Json settings = settings_of("serve", {});
  settings["export_type"] = recipe_.export_type;
  const Stage stage = {.name = "serve",
                       .settings = settings,
                       .inputs = {{"export", records_["export"].fingerprint()}},
                       .output = inside(form_.draft),
                       .repeatable = true};
  return do_stage(stage, [this] {
    return serve_for_run(recipe_, form_, paths_.root, inside(checkpoint_),
                         records_["evaluate"].result.at("document_ids").get<std::vector<std::string>>(),
                         progress_);
  });
}

Status forget_from(const RunPaths& paths, const std::string& stage) {
  const auto first = std::find(stage_names().begin(), stage_names().end(), stage);
  if (first == stage_names().end()) {
    const std::string nearest = nearest_name(stage, stage_names());
    return Status(StatusCode::kUsage, "--redo: there is no stage '" + stage + "'", {},
                  nearest.empty() ? fmt::format("stages: {}", fmt::join(stage_names(), ", "))
                                  : "did you mean '" + nearest + "'?");
  }
  for (auto name = first; name != stage_names().end(); ++name) {
    // The record goes first: without it nothing claims that the output is whole.
    EAGLET_RETURN_IF_ERROR(remove_all(paths.stage_record(*name)));
    if (*name == "generate") {
      EAGLET_RETURN_IF_ERROR(remove_all(paths.conversations()));
      EAGLET_RETURN_IF_ERROR(remove_all(paths.root + "/conversations.settings.json"));
    }
    if (*name == "extract") {
      EAGLET_RETURN_IF_ERROR(remove_all(paths.states()));
      EAGLET_RETURN_IF_ERROR(remove_all(paths.stages() + "/states-dropped"));
    }
    if (*name == "train") EAGLET_RETURN_IF_ERROR(remove_all(paths.draft()));
    if (*name == "export") EAGLET_RETURN_IF_ERROR(remove_all(paths.exported()));
  }
  return {};
}

}  // namespace eaglet::apps
