#include "evaluate/serve_native.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/interrupt.h"

namespace eaglet {
namespace {

using Tokens = std::vector<std::int32_t>;

class BatchMeasurement {
 public:
  BatchMeasurement(const ServeOptions& options, const BatchServeEngine& engine, Progress& progress)
      : options_(options), engine_(engine), progress_(progress) {
    report_.engine = "our own engine";
    report_.temperature = engine.temperature;
    report_.at_once = engine.at_once;
    report_.lengths = no_sums(options.draft_lengths);
  }

  Result<ServeReport> run(const std::vector<ServePrompt>& prompts) {
    // Enough prompts that a slice is mostly full batches, few enough that a slow minute of the machine hits
    // all ways of answering.
    const auto slice = static_cast<std::size_t>(std::max<std::int64_t>(8 * engine_.at_once, 64));
    progress_.begin("serve", prompts.size() * ways(), "answers");
    for (std::size_t first = 0, turn = 0; first < prompts.size(); first += slice, ++turn) {
      const std::size_t end = std::min(first + slice, prompts.size());
      EAGLET_RETURN_IF_ERROR(measure(prompts, first, end, turn));
    }
    report_.prompts = static_cast<std::int64_t>(prompts.size());
    progress_.end(fmt::format("{} prompts, {:.1f} tokens/s without the draft", report_.prompts,
                              report_.plain_tokens_per_second()));
    return report_;
  }

 private:
  std::size_t ways() const { return report_.lengths.size() + 1; }  // the first without the draft

  Status measure(const std::vector<ServePrompt>& prompts, std::size_t first, std::size_t end,
                 std::size_t turn) {
    std::vector<std::vector<Tokens>> answers(ways());
    for (std::size_t i = 0; i < ways(); ++i) {
      const std::size_t way = (i + turn) % ways();
      EAGLET_ASSIGN_OR_RETURN(answers[way], answer(prompts, first, end, way));
    }
    for (std::size_t way = 1; way < ways() && engine_.temperature == 0; ++way)
      for (std::size_t i = first; i < end; ++i)
        EAGLET_RETURN_IF_ERROR(compare(prompts[i], answers[0][i - first], answers[way][i - first], way));
    return {};
  }

  Status compare(const ServePrompt& prompt, const Tokens& plain, const Tokens& drafted, std::size_t way) {
    if (plain == drafted) return {};
    EAGLET_ASSIGN_OR_RETURN(ServeDifference difference,
                            explain_difference(engine_.logits_after, prompt, plain, drafted));
    difference.draft_length = options_.draft_lengths[way - 1];
    report_.differences.push_back(difference);
    return {};
  }

  Result<std::vector<Tokens>> answer(const std::vector<ServePrompt>& prompts, std::size_t first,
                                     std::size_t end, std::size_t way) {
    const std::int64_t draft_length = way == 0 ? 0 : report_.lengths[way - 1].draft_length;
    std::int64_t longest = 0;
    for (std::size_t i = first; i < end; ++i)
      longest =
          std::max(longest, static_cast<std::int64_t>(prompts[i].tokens.size()) + prompts[i].answer_tokens);
    EAGLET_ASSIGN_OR_RETURN(const auto generator, engine_.generator(end - first, longest, draft_length));
    std::vector<Tokens> answers(end - first);
    std::size_t next = first;
    const double start = monotonic_seconds();
    EAGLET_RETURN_IF_ERROR(generator->run(
        [&]() -> std::optional<GenerationRequest> {
          if (next == end) return std::nullopt;
          const ServePrompt& prompt = prompts[next];
          GenerationRequest request{next, prompt.tokens, prompt.answer_tokens,
                                    static_cast<std::uint32_t>(next + 1)};
          ++next;
          return request;
        },
        [&](const GeneratedAnswer& one) {
          answers[one.tag - first] = one.tokens;
          add(one, way);
          progress_.update(++answered_, fmt::format("{} drafted at a time", draft_length));
          return Status();
        },
        [](std::int64_t, int) {
          return interrupted() ? Status(StatusCode::kInterrupted, "stopped by a signal") : Status();
        }));
    (way == 0 ? report_.plain_seconds : report_.lengths[way - 1].seconds) += monotonic_seconds() - start;
    return answers;
  }

  void add(const GeneratedAnswer& answer, std::size_t way) {
    const auto tokens = static_cast<double>(answer.tokens.size());
    if (way == 0) {
      report_.plain_tokens += tokens;
      return;
    }
    ServedLength& sum = report_.lengths[way - 1];
    sum.tokens += tokens;
    sum.drafted += static_cast<double>(answer.drafts.drafted);
    sum.accepted += static_cast<double>(answer.drafts.accepted);
    sum.passes += static_cast<double>(answer.drafts.passes);
    for (std::size_t i = 0; i < answer.drafts.accepted_at.size(); ++i)
      sum.accepted_at[i] += static_cast<double>(answer.drafts.accepted_at[i]);
  }

  const ServeOptions& options_;
  const BatchServeEngine& engine_;
  Progress& progress_;
  ServeReport report_;
  std::uint64_t answered_ = 0;
};

}  // namespace

Result<ServeReport> serve_native(const ServeOptions& options, const BatchServeEngine& engine,
                                 Progress& progress) {
  EAGLET_RETURN_IF_ERROR(check_draft_lengths(options.draft_lengths));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<ServePrompt> prompts, read_serve_prompts(options));
  return BatchMeasurement(options, engine, progress).run(prompts);
}

}  // namespace eaglet
