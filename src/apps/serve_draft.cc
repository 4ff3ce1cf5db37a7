#include "apps/serve_draft.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "base/files.h"
#include "draft/draft_weights.h"
#include "evaluate/serve_native.h"
#include "export/export.h"
#include "generate/embedded_engine.h"
#include "verifier/quantize_copy.h"

namespace eaglet::apps {
namespace {

Result<std::string> make_gguf(const ServeRequest& request, Progress& progress) {
  const GgufType type = request.draft_type == "f32"   ? GgufType::kF32
                        : request.draft_type == "f16" ? GgufType::kF16
                                                      : GgufType::kQ8_0;
  EAGLET_ASSIGN_OR_RETURN(const DraftWeights draft, read_draft(request.draft, false, nullptr));
  EAGLET_RETURN_IF_ERROR(make_directories(request.work_dir));
  const std::string path = fmt::format("{}/draft-{}.gguf", request.work_dir, getpid());
  EAGLET_RETURN_IF_ERROR(export_gguf(draft, request.model, type, path));
  progress.note(fmt::format("draft written as {} GGUF for llama.cpp", request.draft_type));
  return path;
}

std::string accepted_text(const ServedLength& served) {
  std::string text;
  for (const double at : served.accepted_at)
    text += fmt::format(" {:.3f}", served.passes > 0 ? at / served.passes : 0);
  return text;
}

std::string difference_text(const ServeDifference& d) {
  if (d.plain < 0 || d.drafted < 0) {
    return fmt::format("  {} (N {}): one answer ends at token {}, the other goes on\n", d.id, d.draft_length,
                       d.position);
  }
  return fmt::format(
      "  {} (N {}), token {}: {} plain, logit {:.5f}; {} drafted, logit {:.5f}; rounding {:.5f}: {}\n", d.id,
      d.draft_length, d.position, d.plain, d.plain_logit, d.drafted, d.drafted_logit, d.rounding,
      d.excused_tie ? "a tie within rounding" : "NOT a tie");
}

std::string identity_text(const ServeReport& report) {
  if (report.temperature > 0) return "text       sampled: not compared\n";
  if (report.differences.empty()) return "text       identical to plain greedy decoding, every token\n";
  std::string text = report.identical()
                         ? "text       identical to plain greedy decoding but for ties within rounding\n"
                         : "text       DIFFERS from plain greedy decoding\n";
  for (const ServeDifference& difference : report.differences) text += difference_text(difference);
  return text;
}

}  // namespace

namespace {

// The target and the draft in our own engine, which `generate --draft` uses.
Result<ServeReport> serve_with_native(const ServeRequest& request, Progress& progress) {
  if (!is_directory(request.draft))
    return Status(StatusCode::kUsage, "our own engine reads checkpoint folders, not a GGUF", request.draft,
                  "give the draft's checkpoint, or --serve llama");
  GenerateOptions options;
  options.engine = "native";
  options.model_path = request.model;
  options.tokenizer_path = request.tokenizer;
  options.compute_type = request.compute_type;
  options.memory = request.memory;
  options.parallel = request.parallel;
  options.temperature = request.temperature;
  options.threads = request.options.threads;
  options.draft_path = request.draft;
  EAGLET_ASSIGN_OR_RETURN(const EmbeddedEngine engine, EmbeddedEngine::open(options, progress));
  BatchServeEngine batch;
  batch.generator = [&](std::size_t requests, std::int64_t, std::int64_t draft_length) {
    return Result<std::unique_ptr<Generator>>(engine.make_drafting_generator(requests, draft_length));
  };
  batch.logits_after = [&](const std::vector<std::int32_t>& tokens, std::size_t together) {
    return engine.logits_after(tokens, together);
  };
  batch.at_once = engine.parallel();
  batch.temperature = request.temperature;
  return serve_native(request.options, batch, progress);
}

}  // namespace

Result<ServeReport> serve_draft(const ServeRequest& request, Progress& progress) {
  if (request.with == "native") return serve_with_native(request, progress);
  if (request.with != "llama")
    return Status(StatusCode::kUsage, "there is no engine '" + request.with + "'", "--serve",
                  "use llama or native");
  if (is_directory(request.model))
    return Status(StatusCode::kConfig, "llama.cpp reads GGUF files, this is a folder", request.model,
                  "give --serve native, or the target's GGUF");
  ServeOptions options = request.options;
  options.target_path = request.model;
  if (request.serve_type == "f16") {
    progress.note("16-bit copy of the target: made once, kept in " + request.work_dir);
    EAGLET_ASSIGN_OR_RETURN(options.target_path,
                            sixteen_bit_copy(request.model, request.work_dir, options.threads));
  }
  options.draft_gguf = request.draft;
  const bool made = is_directory(request.draft);
  if (made) {
    EAGLET_ASSIGN_OR_RETURN(options.draft_gguf, make_gguf(request, progress));
  }
  bool lies_there = made;
  const auto remove = [&] {
    if (!lies_there) return;
    lies_there = false;
    const Status removed = remove_all(options.draft_gguf);
    if (!removed.ok()) progress.note("left behind: " + options.draft_gguf);
  };
  options.loaded = remove;  // as soon as it is mapped: a run that is killed while it measures leaves nothing
  auto report = serve(options, progress);
  remove();
  return report;
}

double served_against_walked(const ServedLength& served, const EvaluateReport* walked) {
  if (walked != nullptr) {
    for (const WalkedAcceptance& w : walked->walked) {
      if (w.draft_length == served.draft_length && w.acceptance_length() > 0) {
        return served.acceptance_length() / w.acceptance_length() - 1;
      }
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::string serve_text(const ServeReport& report, const EvaluateReport* walked) {
  const std::string how =
      report.temperature > 0 ? fmt::format("temperature {}", report.temperature) : "greedy";
  std::string text =
      fmt::format("served     {} prompts in {}, {}, {} at once; without a draft {:.1f} tokens/s\n",
                  report.prompts, report.engine, how, report.at_once, report.plain_tokens_per_second());
  text += "  N  tokens/pass  tokens/s  speed-up  walked  served/walked  accepted at 1..N, share of passes\n";
  for (const ServedLength& served : report.lengths) {
    const double against = served_against_walked(served, walked);
    const std::string compared =
        std::isnan(against)
            ? fmt::format("{:>6}  {:>13}", "-", "-")
            : fmt::format("{:6.3f}  {:>+12.1f}%", served.acceptance_length() / (1 + against), 100 * against);
    text += fmt::format("{:3}  {:11.3f}  {:8.1f}  {:7.2f}x  {} {}\n", served.draft_length,
                        served.acceptance_length(), served.tokens_per_second(),
                        served.tokens_per_second() / report.plain_tokens_per_second(), compared,
                        accepted_text(served));
  }
  return text + identity_text(report);
}

}  // namespace eaglet::apps
