#include "generate/served_record.h"

#include "base/clock.h"
#include "generate/answer_file.h"

namespace eaglet {

Status FailureLines::add(const std::string& id, const std::string& kind, const std::string& message) {
  if (!lines_) {
    EAGLET_ASSIGN_OR_RETURN(LineAppender lines, LineAppender::open(path_));
    lines_.emplace(std::move(lines));
  }
  return lines_->append(json_line({{"id", id}, {"kind", kind}, {"message", message}}));
}

std::int64_t failed_prompts(const ServedCounts& counts) {
  return counts.refused + counts.empty + total_of(counts.failed);
}

Json served_settings(const GenerateOptions& options, const ServerFacts& server, const Json& request) {
  return {{"served_model", server.model},
          {"server_kind", server_kind_name(server.kind)},
          {"max_tokens", options.max_tokens},
          {"temperature", options.temperature},
          {"top_p", options.top_p},
          {"seed", options.seed},
          {"regenerate", options.served.regenerate},
          {"request", request},
          {"record",
           {{"servers", options.servers},
            {"concurrency", options.served.concurrency},
            {"timeout_seconds", options.served.timeout_seconds},
            {"cut", options.served.cut},
            {"tokenizer", options.model_path},
            {"chat_template", options.served.template_path}}}};
}

Status write_served_manifest(const GenerateOptions& options, const Json& settings,
                             const GenerateReport& report, const Status& ended) {
  const ServedCounts& counts = report.served;
  Json manifest = {{"schema", 1},
                   {"written", rfc3339_utc(wall_seconds())},
                   {"settings", settings},
                   {"prompts_path", options.prompts_path},
                   {"lines", report.lines},
                   {"blank_lines", report.blank_lines},
                   {"left_out", report.left_out},
                   {"prompts", report.prompts},
                   {"already_done", report.already_done},
                   {"whole", counts.whole},
                   {"cut_while_thinking", counts.cut_while_thinking},
                   {"cut_in_answer", counts.cut_in_answer},
                   {"empty", counts.empty},
                   {"refused", counts.refused},
                   {"failed", counts.failed},
                   {"not_reached", counts.not_reached},
                   {"without_thinking", counts.without_thinking},
                   {"tokenised_here", counts.tokenised_here},
                   {"requests", counts.requests},
                   {"retried", counts.retried},
                   {"seconds", report.seconds},
                   {"ended", ended.ok() ? "done" : ended.what()}};
  return write_json_file(side_file(options.output_path, "manifest.json"), manifest);
}

}  // namespace eaglet
