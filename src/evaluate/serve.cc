#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "evaluate/evaluate.h"
#include "evaluate/serve_difference.h"
#include "evaluate/serve_engine.h"

namespace eaglet {
namespace {

constexpr std::int64_t kWarmUpTokens = 8;

void add(const EngineAnswer& answer, ServedLength* sum) {
  sum->tokens += static_cast<double>(answer.tokens.size());
  sum->drafted += static_cast<double>(answer.drafted);
  sum->accepted += static_cast<double>(answer.accepted);
  sum->passes += static_cast<double>(answer.passes);
  sum->seconds += answer.seconds;
  for (std::size_t i = 0; i < answer.accepted_at.size(); ++i)
    sum->accepted_at[i] += static_cast<double>(answer.accepted_at[i]);
}

class Measurement {
 public:
  Measurement(ServeEngine& engine, const ServeOptions& options, Progress& progress)
      : engine_(engine), options_(options), progress_(progress) {
    report_.engine = "llama.cpp";
    report_.lengths = no_sums(options.draft_lengths);
  }

  Result<ServeReport> run(const std::vector<ServePrompt>& prompts) {
    EAGLET_RETURN_IF_ERROR(warm_up(prompts.front()));
    const std::size_t ways = report_.lengths.size() + 1;
    progress_.begin("serve", prompts.size() * ways, "answers");
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EAGLET_RETURN_IF_ERROR(measure(prompts[i], i));
      ++report_.prompts;
    }
    progress_.end(fmt::format("{} prompts, {:.1f} tokens/s without the draft", report_.prompts,
                              report_.plain_tokens_per_second()));
    return report_;
  }

 private:
  // The first answers of a process pay for memory and caches; nobody's tokens per second should.
  Status warm_up(const ServePrompt& prompt) {
    EAGLET_ASSIGN_OR_RETURN(const EngineAnswer plain, engine_.plain(prompt.tokens, kWarmUpTokens));
    EAGLET_ASSIGN_OR_RETURN(const EngineAnswer drafted,
                            engine_.drafted(prompt.tokens, kWarmUpTokens, options_.draft_lengths.back()));
    return {};
  }

  // All ways of answering one prompt one after the other, another first each time, so that a slow minute of
  // the machine hits them all alike.
  Status measure(const ServePrompt& prompt, std::size_t turn) {
    const std::size_t ways = report_.lengths.size() + 1;
    std::vector<std::vector<std::int32_t>> answers(ways);
    for (std::size_t i = 0; i < ways; ++i) {
      const std::size_t way = (i + turn) % ways;
      EAGLET_ASSIGN_OR_RETURN(answers[way], answer(prompt, way));
      progress_.update(++answered_, detail());
    }
    for (std::size_t way = 1; way < ways; ++way) {
      if (answers[way] == answers[0]) continue;
      EAGLET_ASSIGN_OR_RETURN(
          ServeDifference difference,
          explain_difference([this](const std::vector<std::int32_t>& tokens,
                                    std::size_t together) { return engine_.logits_after(tokens, together); },
                             prompt, answers[0], answers[way]));
      difference.draft_length = options_.draft_lengths[way - 1];
      report_.differences.push_back(difference);
    }
    return {};
  }

  Result<std::vector<std::int32_t>> answer(const ServePrompt& prompt, std::size_t way) {
    if (way > 0) {
      ServedLength& sum = report_.lengths[way - 1];
      EAGLET_ASSIGN_OR_RETURN(const EngineAnswer drafted,
                              engine_.drafted(prompt.tokens, prompt.answer_tokens, sum.draft_length));
      add(drafted, &sum);
      return drafted.tokens;
    }
    EAGLET_ASSIGN_OR_RETURN(const EngineAnswer plain, engine_.plain(prompt.tokens, prompt.answer_tokens));
    report_.plain_tokens += static_cast<double>(plain.tokens.size());
    report_.plain_seconds += plain.seconds;
    return plain.tokens;
  }

  std::string detail() const {
    const ServedLength& shown = report_.lengths.front();
    return fmt::format("{:.1f} tokens/s without, {:.1f} with {} drafted", report_.plain_tokens_per_second(),
                       shown.tokens_per_second(), shown.draft_length);
  }

  ServeEngine& engine_;
  const ServeOptions& options_;
  Progress& progress_;
  ServeReport report_;
  std::uint64_t answered_ = 0;
};

}  // namespace

bool ServeReport::identical() const {
  return std::all_of(differences.begin(), differences.end(),
                     [](const ServeDifference& d) { return d.excused_tie; });
}

Result<ServeReport> serve(const ServeOptions& options, Progress& progress) {
  EAGLET_RETURN_IF_ERROR(check_draft_lengths(options.draft_lengths));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<ServePrompt> prompts, read_serve_prompts(options));
  const std::int64_t longest = *std::max_element(options.draft_lengths.begin(), options.draft_lengths.end());
  std::int64_t context = 0;
  for (const ServePrompt& prompt : prompts) {
    context = std::max(context, static_cast<std::int64_t>(prompt.tokens.size()) + prompt.answer_tokens);
  }
  EAGLET_ASSIGN_OR_RETURN(const auto engine,
                          ServeEngine::load(options.target_path, options.draft_gguf, context + longest + 8,
                                            longest, options.threads));
  if (options.loaded) options.loaded();
  return Measurement(*engine, options, progress).run(prompts);
}

}  // namespace eaglet
