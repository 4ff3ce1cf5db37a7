#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/command.h"
#include "base/clock.h"
#include "base/files.h"
#include "draft/draft_weights.h"
#include "export/export.h"
#include "formats/json.h"
#include "formats/target_model.h"

namespace eaglet::apps {
namespace {

struct ExportFlags {
  std::string draft, model, format = "gguf", type = "q8_0", verifier, output;
};

Status usage(std::string what, std::string todo) {
  return Status(StatusCode::kUsage, std::move(what), {}, std::move(todo));
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  return std::filesystem::equivalent(a, b, missing);
}

Status write_gguf_draft(const ExportFlags& flags, const DraftWeights& draft) {
  const GgufType type = flags.type == "f32"   ? GgufType::kF32
                        : flags.type == "f16" ? GgufType::kF16
                                              : GgufType::kQ8_0;
  return export_gguf(draft, flags.model, type, flags.output);
}

Status write_speculators_draft(const ExportFlags& flags, const DraftWeights& draft) {
  if (flags.verifier.empty()) {
    return usage("the speculators layout names its verifier, and --verifier was not given",
                 "--verifier DIR: the target as a local transformers directory");
  }
  std::vector<float> embeddings;
  if (draft.embed_tokens.empty()) {
    EAGLET_ASSIGN_OR_RETURN(TargetWeights target, read_target_weights(flags.model));
    embeddings = std::move(target.embed_tokens);
  }
  return export_speculators(draft, embeddings, flags.verifier, flags.output);
}

Result<std::uint64_t> written_bytes(const ExportFlags& flags) {
  return file_bytes(flags.format == "gguf" ? flags.output : flags.output + "/model.safetensors");
}

Status run_export(const ExportFlags& flags, Context& context) {
  LoadReport report;
  EAGLET_ASSIGN_OR_RETURN(const DraftWeights draft, read_draft(flags.draft, false, &report));
  const bool gguf = flags.format == "gguf";
  if (gguf && same_file(flags.model, flags.output))
    return usage("--output is the target's own file", "choose another name");
  if (!gguf && same_file(flags.draft, flags.output))
    return usage("--output is the draft's own folder", "choose another one");
  EAGLET_RETURN_IF_ERROR(gguf ? write_gguf_draft(flags, draft) : write_speculators_draft(flags, draft));
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, written_bytes(flags));
  if (context.json) {
    Json json = {{"schema", 1}, {"output", flags.output}, {"format", flags.format}, {"bytes", bytes}};
    json["type"] = gguf ? flags.type : "f32";
    fmt::print("{}\n", json_line(json));
    return {};
  }
  fmt::print("{}  {}, {}\n", flags.output, gguf ? "GGUF " + flags.type : "speculators layout, f32",
             human_bytes(static_cast<double>(bytes)));
  if (gguf) {
    fmt::print("serve it: llama-server -m {} -md {} --spec-type draft-eagle3 --spec-draft-n-max 2\n",
               flags.model, flags.output);
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
      "  eaglet export --draft DIR --model target.gguf --format speculators \\\n"
      "                --verifier /models/target --output draft-speculators              for vLLM");
  app.add_option("--draft", flags->draft, "a checkpoint folder")->required()->type_name("DIR");
  app.add_option("--model", flags->model, "the target's GGUF: tokenizer, embedding, shape")
      ->required()
      ->type_name("GGUF");
  app.add_option("--format", flags->format, "gguf (llama.cpp) or speculators (vLLM)")
      ->check(CLI::IsMember({"gguf", "speculators"}).description(""))
      ->type_name("FORMAT");
  app.add_option("--type", flags->type, "weights of a GGUF: f32, f16 or q8_0")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}).description(""))
      ->type_name("TYPE");
  app.add_option("--verifier", flags->verifier, "speculators: the target as a local transformers directory")
      ->type_name("DIR");
  app.add_option("--output,-o", flags->output, "file (gguf) or folder (speculators) to write")
      ->required()
      ->type_name("PATH");
  return [flags](Context& context) { return run_export(*flags, context); };
}

}  // namespace eaglet::apps
