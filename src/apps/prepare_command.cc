#include <fmt/format.h>

#include <cstdio>

#include "apps/command.h"
#include "apps/stage_json.h"
#include "generate/prepare.h"

namespace eaglet::apps {
namespace {

void print(const PrepareReport& report, const PrepareOptions& options) {
  fmt::print("{} of {} lines kept in {}: {} sequences, {} tokens, {} of them supervised\n", report.kept,
             report.lines, options.output_path, report.rows, report.tokens, report.supervised_tokens);
  if (!report.left_out.empty())
    fmt::print("  left out {}: {}\n", total_of(report.left_out), reasons_text(report.left_out));
  if (report.blank_lines > 0) fmt::print("  {} blank lines skipped\n", report.blank_lines);
  if (report.cut > 0) fmt::print("  {} sequences cut to {} tokens\n", report.cut, options.max_seq_len);
  if (report.with_thinking + report.with_tools > 0)
    fmt::print("  {} with thinking, {} with tool calls\n", report.with_thinking, report.with_tools);
  if (report.warnings > 0) fmt::print("  {} odd but kept\n", report.warnings);
}

}  // namespace

Run add_prepare(CLI::App& app) {
  app.description(
      "Turns conversations that are there into training sequences, with what the target wrote marked.\n"
      "Read: role/content, from/value or token ids; JSON lines or one JSON list; plain, gz or zst");
  app.footer(
      "  eaglet prepare talks.jsonl --model target.gguf --output runs/a/conversations.jsonl\n"
      "  eaglet prepare sharegpt.json.gz more.jsonl.zst --model target.gguf --output c.jsonl --max-seq-len "
      "4096\n"
      "  eaglet prepare talks.jsonl --model target.gguf --chat-template chat_template.jinja --output "
      "c.jsonl\n"
      "  eaglet inspect c.jsonl --show ID --model target.gguf     one sequence, supervised tokens marked");
  auto options = std::make_shared<PrepareOptions>();
  app.add_option("CONVERSATIONS", options->inputs, "files of conversations")->required();
  app.add_option("--output", options->output_path, "conversations.jsonl, replaced when all is done")
      ->required()
      ->type_name("FILE");
  app.add_option("--model", options->model_path,
                 "the target, a GGUF file or a transformers folder: tokenizer and chat template")
      ->type_name("TARGET");
  app.add_option("--chat-template", options->template_path, "this template (Jinja) instead of the model's")
      ->type_name("FILE");
  app.add_option("--template-arguments", options->template_arguments,
                 "further variables of the template, a JSON object")
      ->type_name("JSON");
  app.add_option("--max-seq-len", options->max_seq_len, "cut sequences to so many tokens (0: no cut)")
      ->type_name("N");
  app.add_flag("--strict", options->strict, "end at the first row that cannot be used");
  app.add_flag("--last-turn-only", options->last_turn_only, "supervise only the last answer of each talk");
  app.add_flag("--learn-empty-thinking", options->learn_empty_thinking,
               "supervise the empty think block that a template puts before an answer");
  return [options](Context& context) -> Status {
    EAGLET_ASSIGN_OR_RETURN(const PrepareReport report, prepare(*options, *context.progress));
    if (!context.json) {
      print(report, *options);
      return Status();
    }
    Json json = {{"schema", 1}, {"output", options->output_path}};
    json.update(prepare_json(report));
    fmt::print("{}\n", json_line(json));
    return Status();
  };
}

}  // namespace eaglet::apps
