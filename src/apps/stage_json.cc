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

Json to_json(const EvaluateReport& r) {
  Json depth = Json::array(), walked = Json::array();
  for (const DepthAcceptance& d : r.depth)
    depth.push_back(
        {{"right", d.right}, {"total", d.total}, {"right_in_vocab", d.right_in_vocab}, {"loss", d.loss}});
  for (const WalkedAcceptance& w : r.walked)
    walked.push_back({{"draft_length", w.draft_length},
                      {"rounds", w.rounds},
                      {"accepted", w.accepted},
                      {"accepted_at", w.accepted_at},
                      {"acceptance_length", w.acceptance_length()}});
  return Json{{"documents", r.documents},
              {"supervised_tokens", r.supervised_tokens},
              {"depth", depth},
              {"acceptance_length", r.acceptance_length},
              {"teacher_best_outside_share", r.teacher_best_outside_share},
              {"walked", walked},
              {"document_ids", r.document_ids}};
}

Json to_json(const ServeReport& r) {
  Json lengths = Json::array(), differences = Json::array();
  for (const ServedLength& l : r.lengths)
    lengths.push_back({{"draft_length", l.draft_length},
                       {"tokens", l.tokens},
                       {"drafted", l.drafted},
                       {"accepted", l.accepted},
                       {"passes", l.passes},
                       {"seconds", l.seconds},
                       {"accepted_at", l.accepted_at},
                       {"acceptance_length", l.acceptance_length()},
                       {"tokens_per_second", l.tokens_per_second()}});
  for (const ServeDifference& d : r.differences)
    differences.push_back({{"id", d.id},
                           {"position", d.position},
                           {"plain", d.plain},
                           {"drafted", d.drafted},
                           {"plain_logit", d.plain_logit},
                           {"drafted_logit", d.drafted_logit},
                           {"excused_tie", d.excused_tie}});
  return Json{{"prompts", r.prompts},
              {"plain_tokens", r.plain_tokens},
              {"plain_seconds", r.plain_seconds},
              {"plain_tokens_per_second", r.plain_tokens_per_second()},
              {"lengths", lengths},
              {"differences", differences}};
}

}  // namespace eaglet::apps
