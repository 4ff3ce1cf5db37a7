#include "apps/evaluate_json.h"

namespace eaglet::apps {
namespace {

Json depth_json(const DepthAcceptance& d) {
  return {{"right", d.right},
          {"total", d.total},
          {"acceptance", d.total > 0 ? d.right / d.total : 0},
          {"right_in_vocab", d.right_in_vocab},
          {"sum_min_p_q", d.overlap_rows > 0 ? Json(d.overlap / d.overlap_rows) : Json(nullptr)},
          {"loss", d.loss}};
}

Json length_json(const ServedLength& l) {
  return {{"draft_length", l.draft_length},
          {"acceptance_length", l.acceptance_length()},
          {"tokens", l.tokens},
          {"drafted", l.drafted},
          {"accepted", l.accepted},
          {"accepted_at", l.accepted_at},
          {"passes", l.passes},
          {"seconds", l.seconds},
          {"tokens_per_second", l.tokens_per_second()}};
}

Json difference_json(const ServeDifference& d) {
  return {{"id", d.id},
          {"draft_length", d.draft_length},
          {"position", d.position},
          {"plain", d.plain},
          {"drafted", d.drafted},
          {"plain_logit", d.plain_logit},
          {"drafted_logit", d.drafted_logit},
          {"rounding", d.rounding},
          {"excused_tie", d.excused_tie}};
}

}  // namespace

Json evaluate_json(const EvaluateReport& report) {
  Json json = {{"documents", report.documents}, {"supervised_tokens", report.supervised_tokens}};
  json["acceptance_length"] = report.acceptance_length;
  json["teacher_best_outside_share"] = report.teacher_best_outside_share;
  json["answer_is_target_best_share"] = report.answer_is_target_best_share;
  json["depth"] = Json::array();
  for (const DepthAcceptance& d : report.depth) json["depth"].push_back(depth_json(d));
  json["walked"] = Json::array();
  for (const WalkedAcceptance& w : report.walked) json["walked"].push_back(walk_json(w));
  json["document_ids"] = report.document_ids;
  return json;
}

Json walk_json(const WalkedAcceptance& w) {
  return {{"draft_length", w.draft_length},
          {"acceptance_length", w.acceptance_length()},
          {"tokens", w.tokens},
          {"accepted", w.accepted},
          {"drafts", w.drafts},
          {"accepted_at", w.accepted_at}};
}

Json server_json(const ServerAcceptance& s) {
  return {{"url", s.url},
          {"kind", s.kind},
          {"model", s.model},
          {"source", s.source},
          {"prompts", s.prompts},
          {"failed", s.failed},
          {"draft_length", s.draft_length},
          {"tokens", s.tokens},
          {"drafts", s.drafts},
          {"drafted", s.drafted},
          {"accepted", s.accepted},
          {"accepted_at", s.accepted_at},
          {"acceptance_length", s.acceptance_length()},
          {"same_share", s.same_share},
          {"asked_again", s.asked_again}};
}

Json verdict_json(const ServerVerdict& v) {
  return {{"walked", v.walked}, {"ratio", v.ratio}, {"good", v.good}, {"causes", v.causes}};
}

Json gains_json(const std::vector<LengthGain>& gains, const PassCosts& costs) {
  Json list = Json::array();
  for (const LengthGain& gain : gains)
    list.push_back({{"draft_length", gain.draft_length},
                    {"tokens_per_pass", gain.tokens_per_pass},
                    {"pass_cost", gain.pass_cost},
                    {"speedup", gain.speedup()}});
  const LengthGain* best = best_gain(gains);
  return {{"draft_step_cost", costs.draft_step},
          {"verify_token_cost", costs.verify_token},
          {"lengths", list},
          {"best_draft_length", best != nullptr ? Json(best->draft_length) : Json(nullptr)}};
}

Json serve_json(const ServeReport& report) {
  Json json = {{"engine", report.engine},
               {"temperature", report.temperature},
               {"prompts", report.prompts},
               {"at_once", report.at_once}};
  json["plain_tokens"] = report.plain_tokens;
  json["plain_seconds"] = report.plain_seconds;
  json["plain_tokens_per_second"] = report.plain_tokens_per_second();
  json["identical"] = report.identical();
  json["lengths"] = Json::array();
  for (const ServedLength& length : report.lengths) json["lengths"].push_back(length_json(length));
  json["differences"] = Json::array();
  for (const ServeDifference& difference : report.differences)
    json["differences"].push_back(difference_json(difference));
  return json;
}

}  // namespace eaglet::apps
