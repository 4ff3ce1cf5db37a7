#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/command.h"
#include "apps/draft_import.h"
#include "base/files.h"
#include "draft/draft_weights.h"
#include "formats/layer_ids.h"
#include "formats/target_model.h"

namespace eaglet::apps {
namespace {

struct ImportFlags {
  std::string directory, output, model;
  std::vector<std::int32_t> layers;
};

Status check_target(const DraftWeights& draft, const TargetFacts& target, const std::string& model) {
  const DraftConfig& c = draft.config;
  const std::string todo = "give the GGUF of the model that this draft was trained for";
  if (c.target_hidden != target.hidden || c.vocab != target.vocab) {
    return Status(StatusCode::kConfig,
                  fmt::format("the draft is for a target of width {} with {} tokens, this one has {} and {}",
                              c.target_hidden, c.vocab, target.hidden, target.vocab),
                  model, todo);
  }
  if (c.aux_layers.back() > target.num_layers) {
    return Status(
        StatusCode::kConfig,
        fmt::format("the draft reads layer {}, the target has {}", c.aux_layers.back(), target.num_layers),
        model, todo);
  }
  return {};
}

bool names_layers(const std::string& directory) {
  const auto json = read_json_file(directory + "/config.json");
  if (!json.ok()) return true;  // reading it again will say what is wrong
  const auto config = draft_config_from_json(*json);
  return !config.ok() || !config->aux_layers.empty();
}

Result<DraftWeights> read(const ImportFlags& flags, LoadReport* report, Progress& progress) {
  ReadDraftOptions options;
  options.aux_layers = flags.layers;
  if (flags.model.empty()) return read_draft(flags.directory, options, report);
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(flags.model));
  EAGLET_ASSIGN_OR_RETURN(const TargetWeights target, read_target_weights(flags.model));
  if (options.aux_layers.empty() && !names_layers(flags.directory)) {
    EAGLET_ASSIGN_OR_RETURN(options.aux_layers, usual_layer_ids(facts.num_layers));
    progress.note("the draft names no captured layers; taking the usual ones: " +
                  layer_text(options.aux_layers));
  }
  options.target_head = &target.head();
  EAGLET_ASSIGN_OR_RETURN(DraftWeights draft, read_draft(flags.directory, options, report));
  EAGLET_RETURN_IF_ERROR(check_target(draft, facts, flags.model));
  draft.config.target_identity = facts.identity;
  if (!draft.embed_tokens.empty() && draft.embed_tokens == target.embed_tokens) {
    draft.embed_tokens.clear();
    report->notes.push_back("its embedding is the target's, bit for bit; not stored again");
  }
  return draft;
}

Status run_import(const ImportFlags& flags, Context& context) {
  std::error_code missing;
  if (std::filesystem::equivalent(flags.directory, flags.output, missing)) {
    return Status(StatusCode::kUsage, "--output-dir is the folder that is read", flags.output,
                  "choose another one");
  }
  LoadReport report;
  EAGLET_ASSIGN_OR_RETURN(const DraftWeights draft, read(flags, &report, *context.progress));
  EAGLET_RETURN_IF_ERROR(make_directories(flags.output));
  EAGLET_RETURN_IF_ERROR(write_draft(flags.output, draft));
  const DraftConfig& c = draft.config;
  if (context.json) {
    Json json = {{"schema", 1}, {"output", flags.output}, {"target_layer_ids", c.aux_layers}};
    json["draft_vocab_size"] = c.draft_vocab;
    json["tensors"] = load_report_json(report);
    fmt::print("{}\n", json_line(json));
    return {};
  }
  fmt::print("{}", load_report_text(report));
  fmt::print("captured layers  {}\n", layer_text(c.aux_layers));
  fmt::print("rotary           {}, base {:g}, factor {:g}\n", c.rope.type, c.rope.theta, c.rope.factor);
  fmt::print("vocabulary       {} of {} tokens{}\n", c.draft_vocab, c.vocab,
             draft.vocab.is_full() ? " (full)" : "");
  fmt::print("written          {} (config.json, model.safetensors; fp32, speculators' names)\n",
             flags.output);
  return {};
}

}  // namespace

Run add_import(CLI::App& app) {
  auto flags = std::make_shared<ImportFlags>();
  app.description("takes in a draft that speculators, SpecForge or EAGLE wrote");
  app.footer(
      "  eaglet import eagle3-llama --output-dir draft                  any layout, fp32, bf16 or fp16\n"
      "  eaglet import published --model target.gguf --output-dir draft  checked against its target\n"
      "  eaglet train ... --from draft                                  and trained on");
  app.add_option("DIR", flags->directory, "the draft: a folder with config.json and model.safetensors")
      ->required();
  app.add_option("--output-dir,--output,-o", flags->output, "where our checkpoint goes")
      ->required()
      ->type_name("DIR");
  app.add_option("--model", flags->model,
                 "the target's GGUF: checks the draft against it, lends the head where a full one is missing")
      ->type_name("GGUF");
  app.add_option("--target-layer-ids", flags->layers,
                 "captured layers, when the config does not say or counts otherwise: id k = input of layer k")
      ->delimiter(',')
      ->type_name("IDS");
  return [flags](Context& context) { return run_import(*flags, context); };
}

}  // namespace eaglet::apps
