#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/command.h"
#include "apps/usage_error.h"
#include "base/clock.h"
#include "base/files.h"
#include "draft/draft_weights.h"
#include "export/export.h"
#include "export/loader_warnings.h"
#include "formats/gguf_file.h"
#include "formats/json.h"
#include "formats/target_model.h"

namespace eaglet::apps {
namespace {

struct ExportFlags {
  std::string draft, model, format = "gguf", type = "q8_0", dtype = "f32", verifier, output;
  bool strict = false;
};

bool same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  return std::filesystem::equivalent(a, b, missing);
}

/// The architecture that a target's GGUF names, whether or not it can be a target of ours.
Result<std::string> target_architecture(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  return file.string("general.architecture").value_or("");
}

Status write_gguf_draft(const ExportFlags& flags, const DraftWeights& draft) {
  const GgufType type = flags.type == "f32"   ? GgufType::kF32
                        : flags.type == "f16" ? GgufType::kF16
                                              : GgufType::kQ8_0;
  return export_gguf(draft, flags.model, type, flags.output, /*despite_ignored=*/true);
}

WeightDtype weight_dtype(const ExportFlags& flags) {
  return flags.dtype == "bf16"  ? WeightDtype::kBF16
         : flags.dtype == "f16" ? WeightDtype::kF16
                                : WeightDtype::kF32;
}

Status write_speculators_draft(const ExportFlags& flags, const DraftWeights& draft) {
  if (flags.verifier.empty()) {
    return flags_error("the speculators layout names its verifier, and --verifier was not given",
                       "--verifier DIR: the target as a local transformers directory");
  }
  std::vector<float> embeddings;
  if (draft.embed_tokens.empty()) {
    EAGLET_ASSIGN_OR_RETURN(TargetWeights target, read_target_weights(flags.model));
    embeddings = std::move(target.embed_tokens);
  }
  return export_speculators(draft, embeddings, flags.verifier, flags.output, weight_dtype(flags));
}

ExportLayout layout_of(const ExportFlags& flags) {
  return flags.format == "gguf"     ? ExportLayout::kGguf
         : flags.format == "sglang" ? ExportLayout::kSglang
                                    : ExportLayout::kSpeculators;
}

/// What loaders would ignore: said aloud, or with --strict an error before anything is written.
Result<std::vector<LoaderWarning>> check_loaders(const ExportFlags& flags, const DraftWeights& draft,
                                                 Progress& progress) {
  std::string architecture;
  if (!flags.model.empty() && !is_directory(flags.model)) {
    EAGLET_ASSIGN_OR_RETURN(architecture, target_architecture(flags.model));
  }
  std::vector<LoaderWarning> warnings = loader_warnings(draft, layout_of(flags), architecture);
  for (const LoaderWarning& warning : warnings)
    progress.note("warning: " + warning.loader + " " + warning.what);
  if (!flags.strict || warnings.empty()) return warnings;
  return Status(StatusCode::kConfig, fmt::format("{} {}", warnings.front().loader, warnings.front().what),
                flags.draft, "train without it, export for a loader that honours it, or leave --strict out");
}

Status write_layout(const ExportFlags& flags, const DraftWeights& draft) {
  switch (layout_of(flags)) {
    case ExportLayout::kGguf:
      return write_gguf_draft(flags, draft);
    case ExportLayout::kSglang:
      return export_sglang(draft, weight_dtype(flags), flags.output);
    case ExportLayout::kSpeculators:
      break;
  }
  return write_speculators_draft(flags, draft);
}

Result<std::uint64_t> written_bytes(const ExportFlags& flags) {
  return file_bytes(flags.format == "gguf" ? flags.output : flags.output + "/model.safetensors");
}

Status run_export(const ExportFlags& flags, Context& context) {
  LoadReport report;
  EAGLET_ASSIGN_OR_RETURN(const DraftWeights draft, read_draft(flags.draft, false, &report));
  const bool gguf = flags.format == "gguf";
  if (flags.model.empty() && flags.format != "sglang")
    return flags_error("--model is missing", "the target: its tokenizer and embedding go into this layout");
  if (gguf && is_directory(flags.model))
    return Status(StatusCode::kConfig, "a GGUF draft needs the target as llama.cpp runs it, this is a folder",
                  flags.model, "give the target's GGUF, or --to speculators or sglang");
  EAGLET_ASSIGN_OR_RETURN(const std::vector<LoaderWarning> warnings,
                          check_loaders(flags, draft, *context.progress));
  if (gguf && same_file(flags.model, flags.output))
    return flags_error("--output is the target's own file", "choose another name");
  if (!gguf && same_file(flags.draft, flags.output))
    return flags_error("--output is the draft's own folder", "choose another one");
  EAGLET_RETURN_IF_ERROR(write_layout(flags, draft));
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, written_bytes(flags));
  if (context.json) {
    Json json = {{"schema", 1}, {"output", flags.output}, {"format", flags.format}, {"bytes", bytes}};
    json["type"] = gguf ? flags.type : flags.dtype;
    json["warnings"] = Json::array();
    for (const LoaderWarning& warning : warnings)
      json["warnings"].push_back({{"loader", warning.loader}, {"what", warning.what}});
    fmt::print("{}\n", json_line(json));
    return {};
  }
  fmt::print("{}  {}, {}\n", flags.output,
             gguf ? "GGUF " + flags.type : flags.format + " layout, " + flags.dtype,
             human_bytes(static_cast<double>(bytes)));
  if (gguf) {
    fmt::print("serve it: llama-server -m {} -md {} --spec-type draft-eagle3 --spec-draft-n-max 2\n",
               flags.model, flags.output);
  } else if (flags.format == "sglang") {
    fmt::print(
        "serve it: python -m sglang.launch_server --model-path TARGET --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path {} --speculative-num-steps {} --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens {}\n",
        flags.output, draft.config.ttt_steps, draft.config.ttt_steps + 1);
  } else {
    fmt::print(
        "serve it: vllm serve {} --speculative-config "
        "'{{\"method\":\"eagle3\",\"model\":\"{}\",\"num_speculative_tokens\":{}}}'\n",
        flags.verifier, flags.output, draft.config.ttt_steps);
  }
  return {};
}

}  // namespace

Run add_export(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  app.description("writes a draft in the form that a server reads");
  app.footer(
      "  eaglet export --draft run/draft/checkpoints/best --model target.gguf --output draft.gguf\n"
      "  eaglet export --draft DIR --model target.gguf --type f16 --output draft.gguf    for llama.cpp\n"
      "  eaglet export --draft DIR --to sglang --dtype bf16 --output draft-sglang             for SGLang\n"
      "  eaglet export --draft DIR --model target.gguf --to speculators \\\n"
      "                --verifier /models/target --output draft-speculators              for vLLM");
  app.add_option("--draft", flags->draft, "a checkpoint folder")->required()->type_name("DIR");
  app.add_option(
         "--model", flags->model,
         "the target: tokenizer, embedding, shape (not for sglang); as gguf its GGUF, else a folder will do")
      ->type_name("TARGET");
  app.add_option("--to,--format", flags->format,
                 "gguf (llama.cpp), speculators (vLLM) or sglang (also SpecForge, vLLM)")
      ->check(CLI::IsMember({"gguf", "speculators", "sglang"}).description(""))
      ->type_name("FORMAT");
  app.add_option("--dtype", flags->dtype, "weights of speculators and sglang: f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}).description(""))
      ->type_name("TYPE");
  app.add_flag("--strict", flags->strict, "what a loader of this layout would ignore is an error");
  app.add_option("--type", flags->type, "weights of a GGUF: f32, f16 or q8_0")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}).description(""))
      ->type_name("TYPE");
  app.add_option("--verifier", flags->verifier, "speculators: the target as a local transformers directory")
      ->type_name("DIR");
  app.add_option("--output,-o", flags->output, "file (gguf) or folder (speculators, sglang) to write")
      ->required()
      ->type_name("PATH");
  return [flags](Context& context) { return run_export(*flags, context); };
}

}  // namespace eaglet::apps
