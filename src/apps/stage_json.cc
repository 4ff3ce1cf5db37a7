#include "apps/stage_json.h"

namespace eaglet::apps {

namespace {
Json served_json(const ServedCounts& c) {
  return {{"asked", c.asked},
          {"whole", c.whole},
          {"cut_while_thinking", c.cut_while_thinking},
          {"cut_in_answer", c.cut_in_answer},
          {"empty", c.empty},
          {"refused", c.refused},
          {"failed", c.failed},
          {"not_reached", c.not_reached},
          {"without_thinking", c.without_thinking},
          {"tokenised_here", c.tokenised_here},
          {"requests", c.requests},
          {"retried", c.retried},
          {"busy", c.busy},
          {"cpu_seconds", c.cpu_seconds}};
}
Json drafts_json(const DraftCounts& c) {
  return {{"passes", c.passes},
          {"drafted", c.drafted},
          {"accepted", c.accepted},
          {"accepted_at", c.accepted_at},
          {"acceptance_length", c.acceptance_length()}};
}
}  // namespace

Json generate_json(const GenerateReport& r) {
  return {{"lines", r.lines},
          {"blank_lines", r.blank_lines},
          {"left_out", r.left_out},
          {"served", r.served.asked > 0 || r.served.requests > 0 ? served_json(r.served) : Json(nullptr)},
          {"prompts", r.prompts},
          {"already_done", r.already_done},
          {"answered", r.answered},
          {"empty_answers", r.empty_answers},
          {"broken_lines", r.broken_lines},
          {"refused_prompts", r.too_long},
          {"stopped", r.stopped},
          {"cut_by_length", r.cut_by_length},
          {"prompt_tokens", r.prompt_tokens},
          {"response_tokens", r.response_tokens},
          {"reused_prompt_tokens", r.reused_prompt_tokens},
          {"draft", r.drafts.passes > 0 ? drafts_json(r.drafts) : Json(nullptr)},
          {"seconds", r.seconds},
          {"tokens_per_second", r.tokens_per_second}};
}

Json prepare_json(const PrepareReport& r) {
  return {{"lines", r.lines},
          {"kept", r.kept},
          {"blank_lines", r.blank_lines},
          {"left_out", r.left_out},
          {"warnings", r.warnings},
          {"cut", r.cut},
          {"sequences", r.rows},
          {"tokens", r.tokens},
          {"supervised_tokens", r.supervised_tokens},
          {"with_thinking", r.with_thinking},
          {"with_tools", r.with_tools}};
}

Json extract_json(const ExtractReport& r) {
  Json json = {{"documents", r.documents},
               {"already_done", r.already_done},
               {"broken_lines", r.broken_lines},
               {"skipped_empty", r.skipped_empty},
               {"cut_away", r.cut_away},
               {"tokens", r.tokens},
               {"supervised_tokens", r.supervised_tokens},
               {"state_bytes", r.state_bytes},
               {"seconds", r.seconds},
               {"tokens_per_second", r.tokens_per_second}};
  if (r.asked + r.taken_over == 0 && r.left_out.empty() && r.left_behind.empty()) return json;
  json["requests"] = r.asked;
  json["taken_over"] = r.taken_over;
  json["left_out"] = Json(r.left_out);
  json["left_behind"] = Json::array();
  for (const auto& [id, file] : r.left_behind) json["left_behind"].push_back({{"id", id}, {"file", file}});
  return json;
}

Json train_json(const TrainReport& r) {
  const bool validated = r.held_out_acceptance_length > 0;
  return {{"steps", r.steps},
          {"total_steps", r.total_steps},
          {"resumed_from_step", r.resumed_from_step >= 0 ? Json(r.resumed_from_step) : Json(nullptr)},
          {"last_checkpoint", r.last_checkpoint},
          {"best_checkpoint", r.best_checkpoint},
          {"first_loss", r.first_loss},
          {"last_loss", r.last_loss},
          {"held_out_acceptance_length", validated ? Json(r.held_out_acceptance_length) : Json(nullptr)},
          {"held_out_full_acc", r.held_out_full_acc},
          {"seconds", r.seconds},
          {"train_tokens_per_second", r.tokens_per_second},
          {"real_tokens", r.real_tokens},
          {"skipped_updates", r.skipped_updates},
          {"compute_type", r.compute_type},
          {"device", r.device},
          {"ranks", r.ranks},
          {"rank_wait_share", r.rank_wait_share},
          {"needed_gflop", r.needed_flops / 1e9},
          {"trainable_params", r.trainable_params},
          {"total_params", r.total_params}};
}

}  // namespace eaglet::apps
