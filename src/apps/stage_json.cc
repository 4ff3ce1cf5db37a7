#include "apps/stage_json.h"

#include <filesystem>

namespace eaglet::apps {

Json to_json(const GenerateReport& r) {
  return Json{{"prompts", r.prompts},
              {"answered", r.answered},
              {"already_done", r.already_done},
              {"empty_answers", r.empty_answers},
              {"broken_lines", r.broken_lines},
              {"too_long", r.too_long},
              {"stopped", r.stopped},
              {"cut_by_length", r.cut_by_length},
              {"prompt_tokens", r.prompt_tokens},
              {"response_tokens", r.response_tokens},
              {"tokens_per_second", r.tokens_per_second}};
}

Json to_json(const ExtractReport& r) {
  return Json{{"documents", r.documents},
              {"already_done", r.already_done},
              {"broken_lines", r.broken_lines},
              {"skipped_empty", r.skipped_empty},
              {"tokens", r.tokens},
              {"supervised_tokens", r.supervised_tokens},
              {"store_bytes", r.state_bytes},
              {"tokens_per_second", r.tokens_per_second}};
}

Json to_json(const TrainReport& r, const std::string& root) {
  const auto inside = [&](const std::string& path) {
    return path.empty() ? path : std::filesystem::proximate(path, root).string();
  };
  return Json{{"steps", r.steps},
              {"total_steps", r.total_steps},
              {"last_checkpoint", inside(r.last_checkpoint)},
              {"best_checkpoint", inside(r.best_checkpoint)},
              {"first_loss", r.first_loss},
              {"last_loss", r.last_loss},
              {"tokens_per_second", r.tokens_per_second},
              {"real_tokens", r.real_tokens},
              {"trainable_params", r.trainable_params},
              {"total_params", r.total_params}};
}

}  // namespace eaglet::apps
