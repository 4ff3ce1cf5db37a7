#include "apps/run_form.h"

#include "base/files.h"

namespace eaglet::apps {
namespace {

std::string named_or(const std::string& name, const char* automatic) {
  return name == "auto" ? automatic : name;
}

Status check_form(const Recipe& recipe, const RunForm& form, bool folder) {
  if (folder && form.layout == ExportLayout::kGguf)
    return Status(StatusCode::kConfig,
                  "a GGUF draft is made for a target's GGUF, and the target is a transformers folder",
                  "export.to", "give the target's GGUF, or export.to = \"speculators\" or \"sglang\"");
  if ((form.layout == ExportLayout::kSpeculators || recipe.speculators) && recipe.verifier.empty() && !folder)
    return Status(StatusCode::kConfig, "the speculators layout names its verifier", "export.verifier",
                  "give the target as a local transformers directory");
  if (!recipe.serve_enabled) return {};
  if (folder && form.serve == "llama")
    return Status(StatusCode::kConfig, "llama.cpp reads GGUF files, and the target is a transformers folder",
                  "serve.with", "give the target's GGUF, or serve.with = \"native\"");
  if (form.serve == "native" && recipe.serve_type != "as-is")
    return Status(StatusCode::kConfig, "the 16-bit copy of serve.type is made for llama.cpp", "serve.type",
                  "leave it out: our own engine multiplies in generate.compute_type");
  return {};
}

}  // namespace

Result<RunForm> run_form(const Recipe& recipe) {
  const bool folder = is_directory(recipe.model_path);
  const std::string to = named_or(recipe.export_to, folder ? "speculators" : "gguf");
  RunForm form;
  form.layout = to == "gguf"     ? ExportLayout::kGguf
                : to == "sglang" ? ExportLayout::kSglang
                                 : ExportLayout::kSpeculators;
  form.draft =
      form.layout == ExportLayout::kGguf ? "export/draft-" + recipe.export_type + ".gguf" : "export/" + to;
  // Without a GGUF of the draft there is still one of the target, from which `serve` makes what it needs.
  form.serve = named_or(recipe.serve_with, folder ? "native" : "llama");
  EAGLET_RETURN_IF_ERROR(check_form(recipe, form, folder));
  return form;
}

}  // namespace eaglet::apps
