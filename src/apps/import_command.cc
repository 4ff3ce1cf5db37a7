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
  std::string directory, output, model, convention = "auto";
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

/// What the draft's own config says about where it comes from.
struct Origin {
  bool names_layers = true;
  bool old_speculators = false;  // 0.3, 0.4: trained on outputs of layers
  bool names_rope = true;
  std::vector<std::int32_t> listed;  // the top-level list, as written
};

Origin origin_of(const std::string& directory) {
  Origin origin;
  const auto json = read_json_file(directory + "/config.json");
  if (!json.ok() || !json->is_object()) return origin;  // reading it again will say what is wrong
  const auto config = draft_config_from_json(*json);
  origin.names_layers = !config.ok() || !config->aux_layers.empty();
  if (config.ok()) origin.listed = config->aux_layers;
  const auto version = json->find("speculators_version");
  if (version == json->end() || !version->is_string()) return origin;
  const auto& text = version->get_ref<const std::string&>();
  origin.old_speculators = text.rfind("0.3", 0) == 0 || text.rfind("0.4", 0) == 0;
  const auto layer = json->find("transformer_layer_config");
  if (layer != json->end() && layer->is_object())
    origin.names_rope = layer->contains("rope_theta") || layer->contains("rope_parameters") ||
                        layer->contains("rope_scaling");
  return origin;
}

bool counts_outputs(const ImportFlags& flags, const Origin& origin) {
  return flags.convention == "output" || (flags.convention == "auto" && origin.old_speculators);
}

/// The layers that the draft was trained on, where the config does not simply say so.
Status choose_layers(const ImportFlags& flags, const Origin& origin, std::int64_t num_layers,
                     std::vector<std::int32_t>* layers, Progress& progress) {
  const bool outputs = counts_outputs(flags, origin);
  if (origin.old_speculators)
    progress.note(
        "speculators 0.3 and 0.4 trained on the outputs of layers and were served on inputs; the trained "
        "ones are taken (--layer-convention input keeps the numbers)");
  if (!layers->empty()) {  // named by hand: as inputs, unless said otherwise
    if (flags.convention == "output")
      for (std::int32_t& id : *layers) ++id;
    return {};
  }
  if (origin.names_layers && outputs) {
    *layers = origin.listed;
    for (std::int32_t& id : *layers) ++id;
    return {};
  }
  if (origin.names_layers || num_layers == 0) return {};
  EAGLET_ASSIGN_OR_RETURN(*layers, usual_layer_ids(num_layers));
  if (outputs)
    for (std::int32_t& id : *layers) ++id;
  progress.note("the draft names no captured layers; taking the usual ones: " + layer_text(*layers));
  return {};
}

Result<DraftWeights> read(const ImportFlags& flags, LoadReport* report, Progress& progress) {
  ReadDraftOptions options;
  options.aux_layers = flags.layers;
  const Origin origin = origin_of(flags.directory);
  if (!origin.names_rope)
    progress.note(
        "its config holds no rotary settings: speculators 0.3 and 0.4 trained at base 10000, whatever the "
        "target uses; that is kept");
  if (flags.model.empty()) {
    EAGLET_RETURN_IF_ERROR(choose_layers(flags, origin, 0, &options.aux_layers, progress));
    return read_draft(flags.directory, options, report);
  }
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(flags.model));
  EAGLET_ASSIGN_OR_RETURN(const TargetWeights target, read_target_weights(flags.model));
  EAGLET_RETURN_IF_ERROR(choose_layers(flags, origin, facts.num_layers, &options.aux_layers, progress));
  options.target_head = &target.head();
  EAGLET_ASSIGN_OR_RETURN(DraftWeights draft, read_draft(flags.directory, options, report));
  EAGLET_RETURN_IF_ERROR(check_target(draft, facts, flags.model));
  draft.config.target_identity = facts.identity;
  if (draft.config.rope != facts.rope)
    report->notes.push_back(
        fmt::format("the draft's rotary settings ({}, base {:g}) are not the target's ({}, base {:g}); the "
                    "draft's are kept",
                    draft.config.rope.type, draft.config.rope.theta, facts.rope.type, facts.rope.theta));
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
  app.description(
      "takes in a draft that speculators, SpecForge, EAGLE, Model-Optimizer, NeMo or llama.cpp's converter "
      "wrote");
  app.footer(
      "  eaglet import eagle3-llama --output-dir draft                  any layout; fp32, bf16, fp16, fp8\n"
      "  eaglet import draft.gguf --output-dir draft                    back from llama.cpp\n"
      "  eaglet import published --model target.gguf --output-dir draft  checked against its target\n"
      "  eaglet train ... --from draft                                  and trained on");
  app.add_option("DIR", flags->directory, "the draft: a folder with config.json and weights, or a GGUF")
      ->required();
  app.add_option("--output-dir,--output,-o", flags->output, "where our checkpoint goes")
      ->required()
      ->type_name("DIR");
  app.add_option("--model", flags->model,
                 "the target (GGUF or transformers folder): checks the draft, lends the head where a full "
                 "one is missing")
      ->type_name("GGUF");
  app.add_option("--layer-convention", flags->convention,
                 "how the draft's own list counts: input, output, or auto (by its origin)")
      ->check(CLI::IsMember({"auto", "input", "output"}).description(""))
      ->type_name("HOW");
  app.add_option("--target-layer-ids", flags->layers,
                 "captured layers, when the config does not say or counts otherwise: id k = input of layer k")
      ->delimiter(',')
      ->type_name("IDS");
  return [flags](Context& context) { return run_import(*flags, context); };
}

}  // namespace eaglet::apps
