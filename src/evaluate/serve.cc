#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/interrupt.h"
#include "evaluate/evaluate.h"
#include "evaluate/serve_engine.h"
#include "formats/conversations.h"

namespace eaglet {
namespace {

constexpr std::int64_t kWarmUpTokens = 8;

struct ServePrompt {
  std::string id;
  std::vector<std::int32_t> tokens;
  std::int64_t answer_tokens = 0;
};

Result<std::vector<ServePrompt>> read_prompts_of(const ServeOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const ConversationFile file, read_conversations(options.conversations_path));
  std::set<std::string> wanted(options.ids.begin(), options.ids.end());
  std::vector<ServePrompt> prompts;
  for (const Conversation& row : file.conversations) {
    if (!options.ids.empty() && wanted.erase(row.id) == 0) continue;
    const std::int64_t before = row.prompt_tokens(), all = static_cast<std::int64_t>(row.input_ids.size());
    if (before < 1 || before >= all) continue;  // nothing to ask, or nothing was answered
    const std::int64_t length = options.max_tokens > 0 ? options.max_tokens : all - before;
    prompts.push_back({row.id, {row.input_ids.begin(), row.input_ids.begin() + before}, length});
  }
  if (!wanted.empty()) {
    return Status(StatusCode::kNotFound, fmt::format("no conversation with id \"{}\"", *wanted.begin()),
                  options.conversations_path, "the ids must be those of the store's documents");
  }
  if (prompts.empty()) {
    return Status(StatusCode::kInvalidArgument, "no conversation with a prompt and an answer",
                  options.conversations_path);
  }
  return prompts;
}

Status check_lengths(const std::vector<std::int64_t>& lengths) {
  if (lengths.empty())
    return Status(StatusCode::kUsage, "no draft length to serve with", {}, "--draft-lengths 1,2,3");
  for (const std::int64_t length : lengths) {
    if (length < 1 || length > 64) {
      return Status(StatusCode::kUsage, fmt::format("a draft length of {} cannot be served", length), {},
                    "use 1 to 64");
    }
  }
  return {};
}

void add(const EngineAnswer& answer, ServedLength* sum) {
  sum->tokens += static_cast<double>(answer.tokens.size());
  sum->drafted += static_cast<double>(answer.drafted);
  sum->accepted += static_cast<double>(answer.accepted);
  sum->passes += static_cast<double>(answer.passes);
  sum->seconds += answer.seconds;
  for (std::size_t i = 0; i < answer.accepted_at.size(); ++i)
    sum->accepted_at[i] += static_cast<double>(answer.accepted_at[i]);
}

std::size_t first_difference(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(at.first - a.begin());
}

// Both logits at the place where two answers part, from plain passes over the tokens they share.
Result<ServeDifference> explain(ServeEngine& engine, const ServePrompt& prompt,
                                const std::vector<std::int32_t>& plain,
                                const std::vector<std::int32_t>& drafted) {
  ServeDifference difference;
  const std::size_t at = first_difference(plain, drafted);
  difference.id = prompt.id;
  difference.position = static_cast<std::int64_t>(at);
  if (at < plain.size()) difference.plain = plain[at];
  if (at < drafted.size()) difference.drafted = drafted[at];
  if (at >= plain.size() || at >= drafted.size())
    return difference;  // one went on behind the other's end: no tie
  std::vector<std::int32_t> shared = prompt.tokens;
  shared.insert(shared.end(), plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(at));
  EAGLET_ASSIGN_OR_RETURN(const auto stepwise, engine.logits_after(shared, prompt.tokens.size()));
  EAGLET_ASSIGN_OR_RETURN(const auto together, engine.logits_after(shared, shared.size()));
  for (std::size_t i = 0; i < stepwise.size(); ++i) {
    difference.rounding =
        std::max(difference.rounding, std::abs(static_cast<double>(stepwise[i]) - together[i]));
  }
  difference.plain_logit = stepwise[static_cast<std::size_t>(difference.plain)];
  difference.drafted_logit = stepwise[static_cast<std::size_t>(difference.drafted)];
  difference.excused_tie =
      std::abs(difference.plain_logit - difference.drafted_logit) <= 2 * difference.rounding;
  return difference;
}

class Measurement {
 public:
  Measurement(ServeEngine& engine, const ServeOptions& options, Progress& progress)
      : engine_(engine), options_(options), progress_(progress) {
    for (const std::int64_t length : options.draft_lengths) {
      ServedLength sum;
      sum.draft_length = length;
      sum.accepted_at.resize(static_cast<std::size_t>(length), 0);
      report_.lengths.push_back(sum);
    }
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
      EAGLET_ASSIGN_OR_RETURN(ServeDifference difference, explain(engine_, prompt, answers[0], answers[way]));
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
  EAGLET_RETURN_IF_ERROR(check_lengths(options.draft_lengths));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<ServePrompt> prompts, read_prompts_of(options));
  const std::int64_t longest = *std::max_element(options.draft_lengths.begin(), options.draft_lengths.end());
  std::int64_t context = 0;
  for (const ServePrompt& prompt : prompts) {
    context = std::max(context, static_cast<std::int64_t>(prompt.tokens.size()) + prompt.answer_tokens);
  }
  EAGLET_ASSIGN_OR_RETURN(const auto engine,
                          ServeEngine::load(options.target_path, options.draft_gguf, context + longest + 8,
                                            longest, options.threads));
  return Measurement(*engine, options, progress).run(prompts);
}

}  // namespace eaglet
