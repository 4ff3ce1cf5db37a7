#include <fmt/format.h>

#include <cstdio>

#include "apps/command.h"
#include "apps/stage_json.h"
#include "generate/generate.h"

namespace eaglet::apps {
namespace {

void print(const GenerateReport& report, const GenerateOptions& options) {
  fmt::print("{} answers in {} ({} now, {} before)\n", report.stopped + report.cut_by_length,
             options.output_path, report.answered, report.already_done);
  fmt::print("  {} prompt tokens, {} answer tokens; {} ended by themselves, {} cut by length, {} empty\n",
             report.prompt_tokens, report.response_tokens, report.stopped, report.cut_by_length,
             report.empty_answers);
  if (report.broken_lines + report.too_long > 0)
    fmt::print("  left out: {} broken lines, {} prompts that do not fit\n", report.broken_lines,
               report.too_long);
  if (report.answered > 0)
    fmt::print("  {:.0f} tokens/s over {:.1f} s\n", report.tokens_per_second, report.seconds);
}

}  // namespace

Run add_generate(CLI::App& app) {
  app.description("Answers prompts with the target model, many at a time. Run again to go on after a stop.");
  app.footer(
      "  eaglet generate --model target.gguf --prompts data/prompts.jsonl --output "
      "runs/a/conversations.jsonl\n"
      "  eaglet generate --model target.gguf --prompts p.jsonl --output c.jsonl --temperature 0.7 --top-p "
      "0.95 --seed 1");
  auto options = std::make_shared<GenerateOptions>();
  app.add_option("--model", options->model_path, "the target, a GGUF file")->required();
  app.add_option("--prompts", options->prompts_path, "JSONL: id and messages (or prompt_ids) per line")
      ->required();
  app.add_option("--output", options->output_path, "conversations.jsonl; finished answers in it are kept")
      ->required();
  app.add_option("--max-prompts", options->max_prompts, "only the first N prompts (0: all)");
  app.add_option("--max-tokens", options->max_tokens, "longest answer, in tokens")->capture_default_str();
  app.add_option("--temperature", options->temperature, "0: greedy")->capture_default_str();
  app.add_option("--top-p", options->top_p, "share of probability to draw from")->capture_default_str();
  app.add_option("--seed", options->seed, "for temperature > 0")->capture_default_str();
  app.add_option("--parallel", options->parallel, "prompts answered together")->capture_default_str();
  app.add_option("--threads", options->threads, "0: all cores")->capture_default_str();
  app.add_option("--weights", options->weights, "arithmetic for a quantised target: auto, stored, f16, f32")
      ->capture_default_str();
  return [options](Context& context) -> Status {
    EAGLET_ASSIGN_OR_RETURN(const GenerateReport report, generate(*options, *context.progress));
    if (!context.json) {
      print(report, *options);
      return Status();
    }
    Json json = {{"schema", 1}, {"output", options->output_path}};
    json.update(generate_json(report));
    fmt::print("{}\n", json.dump(2));
    return Status();
  };
}

}  // namespace eaglet::apps
