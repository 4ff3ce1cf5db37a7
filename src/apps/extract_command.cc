#include <fmt/format.h>

#include <cstdio>

#include "apps/command.h"
#include "apps/stage_json.h"
#include "base/clock.h"
#include "extract/extract.h"

namespace eaglet::apps {
namespace {

void print(const ExtractReport& report, const ExtractOptions& options) {
  const double share = report.tokens > 0 ? 100.0 * static_cast<double>(report.supervised_tokens) /
                                               static_cast<double>(report.tokens)
                                         : 0;
  fmt::print("{} documents in {} ({} before)\n", report.documents, options.store_path, report.already_done);
  fmt::print("  {} tokens, {:.1f} % supervised, {}\n", report.tokens, share,
             human_bytes(static_cast<double>(report.state_bytes)));
  if (report.broken_lines + report.skipped_empty + report.cut_away > 0)
    fmt::print("  left out: {} broken lines, {} nothing supervised, {} cut by the length limit\n",
               report.broken_lines, report.skipped_empty, report.cut_away);
  if (report.seconds > 0)
    fmt::print("  {:.0f} tokens/s over {:.1f} s\n", report.tokens_per_second, report.seconds);
}

}  // namespace

Run add_extract(CLI::App& app) {
  app.description(
      "Runs the target over conversations and keeps its hidden states. Run again to go on after a stop.");
  app.footer(
      "  eaglet extract --model target.gguf --conversations runs/a/conversations.jsonl --output-dir "
      "runs/a/states\n"
      "  eaglet extract --model target.gguf --conversations c.jsonl --output-dir states --target-layer-ids 2 "
      "15 27");
  auto options = std::make_shared<ExtractOptions>();
  app.add_option("--model", options->model_path, "the target, a GGUF file")->required();
  app.add_option("--conversations", options->conversations_path, "conversations.jsonl")->required();
  app.add_option("--output-dir", options->store_path, "the state store; finished documents in it are kept")
      ->required();
  app.add_option("--target-layer-ids", options->target_layer_ids,
                 "layers to capture: id k is the state after k layers (default 2, L/2, L-3)")
      ->delimiter(',');
  app.add_option("--max-seq-len", options->max_seq_len,
                 "cut documents to this many tokens (0: no cut)");
  app.add_option("--shard-bytes", options->shard_bytes, "size at which a new file begins")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "0: all cores")->capture_default_str();
  app.add_option("--weights", options->weights, "arithmetic for a quantised target: auto, stored, f16, f32")
      ->capture_default_str();
  app.add_flag("--force", options->force, "go on although the disk seems too small");
  return [options](Context& context) -> Status {
    EAGLET_ASSIGN_OR_RETURN(const ExtractReport report, extract(*options, *context.progress));
    if (!context.json) {
      print(report, *options);
      return Status();
    }
    Json json = {{"schema", 1}, {"store", options->store_path}};
    json.update(extract_json(report));
    fmt::print("{}\n", json.dump(2));
    return Status();
  };
}

}  // namespace eaglet::apps
