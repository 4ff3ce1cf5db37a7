#include "apps/run_last_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/cache_dir.h"
#include "apps/evaluate_json.h"
#include "apps/run_paths.h"
#include "apps/serve_draft.h"
#include "base/clock.h"
#include "base/files.h"
#include "draft/draft_weights.h"
#include "formats/target_model.h"

namespace eaglet::apps {
namespace {

GgufType gguf_type(const std::string& name) {
  return name == "f32" ? GgufType::kF32 : name == "f16" ? GgufType::kF16 : GgufType::kQ8_0;
}

WeightDtype weight_dtype(const std::string& name) {
  return name == "bf16" ? WeightDtype::kBF16 : name == "f16" ? WeightDtype::kF16 : WeightDtype::kF32;
}

Status write_speculators(const Recipe& recipe, const DraftWeights& draft, const std::string& directory) {
  EAGLET_ASSIGN_OR_RETURN(const TargetWeights target, read_target_weights(recipe.model_path));
  std::string verifier = recipe.verifier;
  if (verifier.empty()) verifier = std::filesystem::absolute(recipe.model_path).lexically_normal().string();
  return export_speculators(draft, target.embed_tokens, verifier, directory,
                            weight_dtype(recipe.export_dtype));
}

Status write_draft(const Recipe& recipe, ExportLayout layout, const DraftWeights& draft,
                   const std::string& path) {
  if (layout == ExportLayout::kGguf)
    return export_gguf(draft, recipe.model_path, gguf_type(recipe.export_type), path);
  EAGLET_RETURN_IF_ERROR(make_directories(path));
  if (layout == ExportLayout::kSglang) return export_sglang(draft, weight_dtype(recipe.export_dtype), path);
  return write_speculators(recipe, draft, path);
}

}  // namespace

Result<Json> export_for_run(const Recipe& recipe, const RunForm& form, const std::string& root,
                            const std::string& checkpoint, Progress& progress) {
  progress.begin("export", 0, "files");
  const std::string path = root + "/" + form.draft, beside = RunPaths(root).exported() + "/speculators";
  EAGLET_RETURN_IF_ERROR(make_directories(RunPaths(root).exported()));
  LoadReport loaded;
  EAGLET_ASSIGN_OR_RETURN(const DraftWeights draft, read_draft(checkpoint, recipe.train.train_head, &loaded));
  EAGLET_RETURN_IF_ERROR(write_draft(recipe, form.layout, draft, path));
  if (recipe.speculators && path != beside)
    EAGLET_RETURN_IF_ERROR(write_draft(recipe, ExportLayout::kSpeculators, draft, beside));
  const bool gguf = form.layout == ExportLayout::kGguf;
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(gguf ? path : path + "/model.safetensors"));
  progress.end(form.draft + ", " + human_bytes(static_cast<double>(bytes)));
  if (gguf) return Json{{"gguf", form.draft}, {"gguf_bytes", bytes}};
  return Json{{"folder", form.draft}, {"folder_bytes", bytes}};
}

Result<Json> serve_for_run(const Recipe& recipe, const RunForm& form, const std::string& root,
                           const std::string& checkpoint, std::vector<std::string> ids, Progress& progress) {
  ServeRequest request;
  request.with = form.serve;
  request.model = recipe.model_path;
  const bool exported = form.serve == "llama" && form.layout == ExportLayout::kGguf;
  request.draft = exported ? root + "/" + form.draft : checkpoint;
  request.draft_type = recipe.export_type;
  request.serve_type = recipe.serve_type;
  request.work_dir = cache_dir();
  request.tokenizer = recipe.generate.tokenizer_path;
  request.compute_type = recipe.generate.compute_type;
  request.memory = recipe.generate.memory;
  if (recipe.generate.parallel > 0) request.parallel = recipe.generate.parallel;
  request.options = recipe.serve;
  request.options.conversations_path = RunPaths(root).conversations();
  request.options.threads = recipe.threads;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(0, recipe.serve_max_prompts));
  if (wanted > 0 && ids.size() > wanted) ids.resize(wanted);
  request.options.ids = std::move(ids);
  EAGLET_ASSIGN_OR_RETURN(const ServeReport report, serve_draft(request, progress));
  return serve_json(report);
}

}  // namespace eaglet::apps
