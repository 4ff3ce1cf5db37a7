#include "apps/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "apps/recipe.h"
#include "apps/run_form.h"
#include "base/clock.h"
#include "base/files.h"
#include "draft/draft_weights.h"
#include "formats/target_model.h"
#include "generate/prompt_pass.h"
#include "store/forecast.h"
#include "train/needed_work.h"

namespace eaglet::apps {
namespace {

constexpr double kFlopsPerParameter = 2;  // of a forward pass, by token

/// The recipe's numbers with those of the files that are there.
struct Facts {
  PlanFacts plan;
  std::vector<std::int32_t> layers;
  std::int64_t sequence_tokens = 0;  // mean, after the cut
  bool has_model = false;
};

Status must_be_told(const char* key, std::int64_t value, const char* todo) {
  if (value > 0) return {};
  return Status(StatusCode::kConfig, fmt::format("the plan does not know {}", key), "section [plan]", todo);
}

Status read_target(const Recipe& recipe, Facts* facts) {
  PlanFacts& plan = facts->plan;
  if (!path_exists(recipe.model_path)) return {};
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts target, read_target_facts(recipe.model_path));
  facts->has_model = true;
  plan.hidden_size = target.hidden;
  plan.num_layers = target.num_layers;
  plan.vocab_size = target.vocab;
  if (plan.num_heads == 0) plan.num_heads = target.num_heads;
  if (plan.num_kv_heads == 0) plan.num_kv_heads = target.num_kv_heads;
  if (plan.head_dim == 0) plan.head_dim = target.head_dim;
  if (plan.intermediate_size == 0) plan.intermediate_size = target.intermediate;
  return {};
}

Status count_prompts(const Recipe& recipe, Facts* facts) {
  if (recipe.prompts_path.empty() || !path_exists(recipe.prompts_path)) return {};
  EAGLET_ASSIGN_OR_RETURN(const Regenerate regenerate,
                          regenerate_from_name(recipe.generate.served.regenerate));
  SideLines unused("");
  EAGLET_ASSIGN_OR_RETURN(const PromptSurvey survey, survey_prompts(recipe.prompts_path, regenerate,
                                                                    recipe.generate.max_prompts, &unused));
  facts->plan.prompts = survey.prompts;
  return {};
}

Result<Facts> gather(const Recipe& recipe) {
  Facts facts;
  facts.plan = recipe.plan;
  PlanFacts& plan = facts.plan;
  EAGLET_RETURN_IF_ERROR(read_target(recipe, &facts));
  EAGLET_RETURN_IF_ERROR(count_prompts(recipe, &facts));
  if (recipe.generate.max_prompts > 0)
    plan.prompts =
        std::min(plan.prompts == 0 ? recipe.generate.max_prompts : plan.prompts, recipe.generate.max_prompts);
  EAGLET_RETURN_IF_ERROR(
      must_be_told("hidden_size", plan.hidden_size, "give the target's width, or its file"));
  EAGLET_RETURN_IF_ERROR(
      must_be_told("num_layers", plan.num_layers, "give the target's layers, or its file"));
  EAGLET_RETURN_IF_ERROR(
      must_be_told("vocab_size", plan.vocab_size, "give the target's vocabulary, or its file"));
  EAGLET_RETURN_IF_ERROR(must_be_told("prompts", plan.prompts, "give how many there will be, or the file"));
  EAGLET_RETURN_IF_ERROR(
      must_be_told("answer_tokens", plan.answer_tokens, "give the mean length of an answer"));
  EAGLET_RETURN_IF_ERROR(
      must_be_told("prompt_tokens", plan.prompt_tokens, "give the mean length of a prompt"));
  if (plan.head_dim == 0) plan.head_dim = 128;
  if (plan.num_heads == 0) plan.num_heads = plan.hidden_size / plan.head_dim;
  if (plan.num_kv_heads == 0) plan.num_kv_heads = plan.num_heads;
  if (plan.intermediate_size == 0) plan.intermediate_size = 4 * plan.hidden_size;
  if (recipe.train.intermediate_size > 0) plan.intermediate_size = recipe.train.intermediate_size;
  facts.layers = recipe.extract.target_layer_ids;
  const auto layers = static_cast<std::int32_t>(plan.num_layers);
  if (facts.layers.empty()) facts.layers = {2, layers / 2, layers - 3};
  facts.sequence_tokens = plan.prompt_tokens + plan.answer_tokens;
  if (recipe.extract.max_seq_len > 0)
    facts.sequence_tokens = std::min(facts.sequence_tokens, recipe.extract.max_seq_len);
  return facts;
}

Json hours(double work, double rate) {
  return rate > 0 ? Json(work / rate / 3600) : Json(nullptr);
}

Json generate_plan(const Recipe& recipe, const Facts& facts) {
  const PlanFacts& plan = facts.plan;
  const double count = static_cast<double>(plan.prompts);
  const double in = count * static_cast<double>(plan.prompt_tokens),
               out = count * static_cast<double>(plan.answer_tokens);
  Json needs = Json::array();
  if (recipe.generate.servers.empty())
    needs.push_back("the target's GGUF or folder: " + recipe.model_path);
  else
    needs.push_back(fmt::format("a server: {}", fmt::join(recipe.generate.servers, ", ")));
  if (!recipe.generate.servers.empty())
    needs.push_back("its key in " + recipe.generate.served.api_key_env + ", when it wants one");
  return {{"stage", "generate"},
          {"requests", recipe.generate.servers.empty() ? 0 : plan.prompts},
          {"prompt_tokens", in},
          {"answer_tokens", out},
          {"flops", kFlopsPerParameter * plan.active_params_billion * 1e9 * (in + out)},
          {"hours", hours(out, plan.server_tokens_per_second)},
          {"bytes", (in + out) * 6},
          {"needs", needs}};
}

Result<Json> extract_plan(const Recipe& recipe, const Facts& facts) {
  const PlanFacts& plan = facts.plan;
  StoreHeader header;
  header.hidden = plan.hidden_size;
  header.target_layers = plan.num_layers;
  header.aux_layers = facts.layers;
  const std::vector<DocumentSize> documents(static_cast<std::size_t>(plan.prompts),
                                            {facts.sequence_tokens, 12});
  EAGLET_ASSIGN_OR_RETURN(const StoreWriterOptions store,
                          store_options(recipe.extract.store_dtype, false, recipe.extract.shard_bytes, ""));
  if (store.encoding == StateEncoding::kFp8) header.dtype = Dtype::kF8E4M3;
  const Forecast forecast = forecast_store(header, documents, store);
  double free_bytes = plan.free_terabytes * 1e12;
  if (free_bytes <= 0) {
    EAGLET_ASSIGN_OR_RETURN(const std::uint64_t now, free_disk_bytes(recipe.output_dir));
    free_bytes = static_cast<double>(now);
  }
  const double tokens = static_cast<double>(forecast.tokens);
  const bool fits = static_cast<double>(forecast.needed_bytes) <= free_bytes;
  Json needs =
      Json::array({fmt::format("{} of disk, {} {}", human_bytes(static_cast<double>(forecast.needed_bytes)),
                               human_bytes(free_bytes), plan.free_terabytes > 0 ? "told" : "free")});
  if (recipe.extract.servers.empty()) {
    if (!facts.has_model) needs.push_back("the target's GGUF or folder: " + recipe.model_path);
  } else {
    const StatesServerOptions& server = recipe.extract.server;
    const double folder = static_cast<double>(server.concurrency * facts.sequence_tokens) *
                          static_cast<double>(forecast.bytes_per_token);
    needs.push_back(
        fmt::format("servers that keep hidden states: {}; their folder {}, about {} in it at most",
                    fmt::join(recipe.extract.servers, ", "), server.states_dir, human_bytes(folder)));
  }
  return Json{{"stage", "extract"},
              {"requests", recipe.extract.servers.empty() ? 0 : forecast.documents},
              {"documents", forecast.documents},
              {"tokens", tokens},
              {"bytes", forecast.needed_bytes},
              {"bytes_per_token", forecast.bytes_per_token},
              {"free_bytes", free_bytes},
              {"fits", fits},
              {"flops", kFlopsPerParameter * plan.active_params_billion * 1e9 * tokens},
              {"hours", hours(tokens, plan.extract_tokens_per_second)},
              {"needs", needs}};
}

DraftConfig draft_of(const Recipe& recipe, const Facts& facts) {
  const PlanFacts& plan = facts.plan;
  DraftConfig config;
  config.hidden = config.target_hidden = plan.hidden_size;
  config.num_heads = plan.num_heads;
  config.num_kv_heads = plan.num_kv_heads;
  config.head_dim = plan.head_dim;
  config.intermediate = plan.intermediate_size;
  config.num_layers = recipe.train.num_layers;
  config.vocab = plan.vocab_size;
  config.draft_vocab = recipe.train.draft_vocab_size > 0 ? recipe.train.draft_vocab_size : plan.vocab_size;
  config.aux_layers = facts.layers;
  config.norm_before_fc = recipe.train.norm_before_fc;
  config.fc_norm = recipe.train.fc_norm;
  config.qk_norm = recipe.train.draft_arch == "qwen3";
  return config;
}

/// Work of one epoch: one mean document, counted as training counts it, as often as there are documents.
double epoch_flops(const Recipe& recipe, const Facts& facts, const DraftConfig& config) {
  const std::int64_t rows =
      std::max<std::int64_t>(1, std::min(facts.sequence_tokens, recipe.train.max_seq_len) - 1);
  const std::int64_t context = std::min(rows - 1, facts.plan.prompt_tokens - 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows), 0),
      documents(static_cast<std::size_t>(rows), 0), positions;
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(rows), 1);
  for (std::int64_t p = 0; p < rows; ++p) positions.push_back(static_cast<std::int32_t>(p + 1));
  std::fill_n(mask.begin(), std::max<std::int64_t>(0, context), 0);
  DraftInputs inputs;
  inputs.rows = rows;
  inputs.input_ids = ids.data();
  inputs.document_ids = documents.data();
  inputs.position_ids = positions.data();
  inputs.loss_mask = mask.data();
  NeededWork work(config, static_cast<int>(recipe.train.ttt_steps), recipe.train.train_head);
  double documents_trained = static_cast<double>(facts.plan.prompts);
  if (recipe.train.hold_out_every > 0)
    documents_trained *= 1 - 1.0 / static_cast<double>(recipe.train.hold_out_every);
  return work.flops(inputs, 1.0, 0) * documents_trained;
}

Json train_plan(const Recipe& recipe, const Facts& facts, const DraftConfig& config) {
  double trainable = 0, parameters = 0;
  for (const ParameterInfo& info : parameter_table(config, recipe.train.train_head)) {
    parameters += static_cast<double>(info.elements);
    if (info.trainable) trainable += static_cast<double>(info.elements);
  }
  const double target =
      static_cast<double>(config.vocab + config.draft_vocab) * static_cast<double>(config.target_hidden);
  const double flops = epoch_flops(recipe, facts, config) * static_cast<double>(recipe.train.epochs);
  const RankSettings& here = recipe.where;
  const double ranks = static_cast<double>(
      facts.plan.ranks > 0 ? facts.plan.ranks : std::max<std::int64_t>({1, here.gpus, here.ranks}));
  // fp32: weights, gradients, two moments; the target's embedding and the head's rows beside them.
  const double memory = 4 * (parameters + 3 * trainable + target);
  Json needs = Json::array(
      {fmt::format("{} of memory a rank for weights, gradients and moments, activations besides",
                   human_bytes(memory)),
       facts.has_model
           ? "the target's embedding, head and norm: " + recipe.model_path
           : "the target's embedding, head and norm from its GGUF or folder, which is not there: " +
                 recipe.model_path});
  if (!recipe.train.from.empty())
    needs.push_back("the draft to start from: " + recipe.train.from +
                    (path_exists(recipe.train.from) ? "" : " (not there)"));
  if (ranks > 1) needs.push_back(fmt::format("{:.0f} ranks", ranks));
  return {{"stage", "train"},
          {"trainable_params", trainable},
          {"total_params", trainable + target + (parameters - trainable)},
          {"tokens", static_cast<double>(facts.plan.prompts * facts.sequence_tokens) *
                         static_cast<double>(recipe.train.epochs)},
          {"flops", flops},
          {"hours", hours(flops, ranks * facts.plan.train_teraflops * 1e12)},
          {"bytes", 4 * (parameters + 2 * trainable)},
          {"memory_bytes_per_rank", memory},
          {"needs", needs}};
}

Json export_plan(const Recipe& recipe, const RunForm& form, const DraftConfig& config) {
  double parameters = 0;
  for (const ParameterInfo& info : parameter_table(config, recipe.train.train_head))
    parameters += static_cast<double>(info.elements);
  const auto bytes_each = [](const std::string& type) {
    return type == "f32" ? 4 : type == "q8_0" ? 1.0625 : 2;
  };
  const bool gguf = form.layout == ExportLayout::kGguf;
  double bytes = parameters * bytes_each(gguf ? recipe.export_type : recipe.export_dtype);
  if (recipe.speculators && form.layout != ExportLayout::kSpeculators)
    bytes += parameters * bytes_each(recipe.export_dtype);
  return {{"stage", "export"}, {"bytes", bytes}, {"flops", 0}, {"hours", 0}, {"needs", Json::array()}};
}

std::string work_text(double flops) {
  const std::pair<double, const char*> units[] = {
      {1e18, "EFLOP"}, {1e15, "PFLOP"}, {1e12, "TFLOP"}, {1e9, "GFLOP"}};
  for (const auto& [size, name] : units)
    if (flops >= size) return fmt::format("{:.1f} {}", flops / size, name);
  return flops > 0 ? fmt::format("{:.0f} FLOP", flops) : "";
}

}  // namespace

Result<Json> plan_run(const Recipe& recipe) {
  EAGLET_ASSIGN_OR_RETURN(const Facts facts, gather(recipe));
  const DraftConfig config = draft_of(recipe, facts);
  Json stages = Json::array();
  if (recipe.conversations_path.empty()) stages.push_back(generate_plan(recipe, facts));
  EAGLET_ASSIGN_OR_RETURN(Json states, extract_plan(recipe, facts));
  stages.push_back(std::move(states));
  stages.push_back(train_plan(recipe, facts, config));
  // Every held-out document once, forward only: about a third of what training on it costs.
  const double held_out =
      recipe.train.hold_out_every > 0 ? 1.0 / static_cast<double>(recipe.train.hold_out_every) : 0;
  const double evaluate = epoch_flops(recipe, facts, config) * held_out / 3;
  stages.push_back({{"stage", "evaluate"},
                    {"flops", evaluate},
                    {"bytes", 0},
                    {"hours", hours(evaluate, facts.plan.train_teraflops * 1e12)},
                    {"needs", Json::array()}});
  EAGLET_ASSIGN_OR_RETURN(const RunForm form, run_form(recipe));
  stages.push_back(export_plan(recipe, form, config));
  if (recipe.serve_enabled)
    stages.push_back({{"stage", "serve"},
                      {"flops", nullptr},
                      {"bytes", 0},
                      {"hours", nullptr},
                      {"needs",
                       {(form.serve == "llama" ? "llama.cpp in this process, on the target's GGUF: "
                                               : "our own engine, on the target's folder or GGUF: ") +
                        recipe.model_path}}});
  double total = 0;
  bool known = true;
  for (const Json& stage : stages) {
    known = known && stage["hours"].is_number();
    if (stage["hours"].is_number()) total += stage["hours"].get<double>();
  }
  return Json{{"schema", 1},
              {"aux_layers", facts.layers},
              {"sequence_tokens", facts.sequence_tokens},
              {"stages", stages},
              {"hours", total},
              {"hours_known_for_all", known}};
}

std::string run_plan_text(const Json& plan) {
  std::string text = fmt::format("{:<10} {:>10} {:>12} {:>12} {:>14} {:>9}\n", "stage", "requests", "tokens",
                                 "bytes", "work", "hours");
  for (const Json& stage : plan["stages"]) {
    double tokens = stage.value("tokens", 0.0);
    if (stage.contains("answer_tokens"))
      tokens = stage["answer_tokens"].get<double>() + stage["prompt_tokens"].get<double>();
    const auto requests = stage.value("requests", std::int64_t{0});
    text += fmt::format(
        "{:<10} {:>10} {:>12} {:>12} {:>14} {:>9}\n", stage["stage"].get<std::string>(),
        requests > 0 ? std::to_string(requests) : "", tokens > 0 ? fmt::format("{:.2f} M", tokens / 1e6) : "",
        stage["bytes"].get<double>() > 0 ? human_bytes(stage["bytes"].get<double>()) : "",
        stage["flops"].is_number() ? work_text(stage["flops"].get<double>()) : "",
        stage["hours"].is_number() ? fmt::format("{:.2f}", stage["hours"].get<double>()) : "not told");
  }
  text += fmt::format("together {:.1f} hours{}\n", plan["hours"].get<double>(),
                      plan["hours_known_for_all"].get<bool>() ? "" : " for the stages whose speed is told");
  for (const Json& stage : plan["stages"]) {
    if (stage.contains("trainable_params"))
      text += fmt::format("draft: {:.0f} trainable of {:.0f} parameters\n",
                          stage["trainable_params"].get<double>(), stage["total_params"].get<double>());
    for (const Json& need : stage["needs"])
      text += fmt::format("{} needs {}\n", stage["stage"].get<std::string>(), need.get<std::string>());
    if (stage.contains("fits") && !stage["fits"].get<bool>())
      text += "the states do not fit: fewer prompts, a smaller extract.max_seq_len, or another disk\n";
  }
  return text;
}

}  // namespace eaglet::apps
