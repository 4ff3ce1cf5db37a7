#include "generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "formats/conversations.h"
#include "generate/answer_file.h"
#include "generate/embedded_engine.h"
#include "generate/served.h"
#include "generate/served_talk.h"
#include "generate/thinking.h"
#include "verifier/chat_template.h"
#include "verifier/generator.h"
#include "verifier/target_tokens.h"

namespace eaglet {
namespace {

/// A prompt on its way: what was asked and the tokens it became.
struct Asked {
  Prompt prompt;
  RenderedPrompt rendered;
  std::vector<std::int32_t> tokens;
};

/// A prompt that cannot be asked, for the side file.
struct Refused {
  Json row;
};

Status check_options(const GenerateOptions& options) {
  const auto usage = [](const std::string& what, const std::string& todo) {
    return Status(StatusCode::kUsage, what, "eaglet generate", todo);
  };
  if (options.max_tokens < 1)
    return usage("--max-tokens is below 1", "give how many tokens an answer may have");
  if (options.parallel < 0) return usage("--parallel is below 0", "give how many prompts to answer together");
  if (!(options.temperature >= 0))
    return usage("--temperature is below 0", "0 is greedy, 1 is the model's own spread");
  if (!(options.top_p > 0 && options.top_p <= 1))
    return usage("--top-p is not in (0, 1]", "1 keeps every token");
  if (options.top_k < 0) return usage("--top-k is below 0", "0 keeps every token");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    return usage("--min-p is not in [0, 1]", "0 keeps every token");
  if (!(options.repetition_penalty > 0)) return usage("--repetition-penalty is not above 0", "1 is none");
  if (options.draft_length < 1 || options.draft_length > 64)
    return usage("--draft-length is not in 1..64", "3 to 6 are usual");
  if (options.max_prompts < 0) return usage("--max-prompts is below 0", "0 means all");
  return Status();
}

/// Those of the newer settings that say nothing are left out: answers of before they existed go on.
Json settings_of(const GenerateOptions& options, const EmbeddedEngine& engine) {
  Json settings = engine.settings();
  settings.update({{"target_identity", engine.facts().identity},
                   {"target_name", engine.facts().name},
                   {"max_tokens", options.max_tokens},
                   {"temperature", options.temperature},
                   {"top_p", options.top_p},
                   {"seed", options.seed}});
  if (options.top_k > 0) settings["top_k"] = options.top_k;
  if (options.min_p > 0) settings["min_p"] = options.min_p;
  if (options.repetition_penalty != 1) settings["repetition_penalty"] = options.repetition_penalty;
  return settings;
}

Result<PromptFile> read_prompt_set(const GenerateOptions& options) {
  auto prompts = read_prompts(options.prompts_path);
  if (!prompts.ok())
    return prompts.status().advise("give a file with one {\"id\": ..., \"messages\": [...]} a line");
  auto& list = prompts->prompts;
  if (options.max_prompts > 0 && static_cast<std::int64_t>(list.size()) > options.max_prompts)
    list.resize(static_cast<std::size_t>(options.max_prompts));
  return prompts;
}

/// Renders and tokenises; a prompt the template refuses or the context cannot hold goes to `refused`.
class PromptTokens {
 public:
  PromptTokens(const TargetTokens& target, std::int64_t max_tokens)
      : target_(target), max_tokens_(max_tokens) {}

  Result<std::deque<Asked>> all(std::vector<Prompt> prompts, const AnswerFile& answers,
                                std::vector<Refused>* refused) {
    std::deque<Asked> asked;
    for (Prompt& prompt : prompts) {
      if (answers.has(prompt.id)) {
        EAGLET_RETURN_IF_ERROR(answers.check_same(prompt));
        continue;
      }
      Asked one;
      one.prompt = std::move(prompt);
      const Status status = fill(&one);
      if (status.ok()) {
        asked.push_back(std::move(one));
      } else if (status.code() == StatusCode::kInvalidArgument) {
        refused->push_back({Json{{"id", one.prompt.id}, {"reason", status.what()}}});
      } else {
        return status;
      }
    }
    return asked;
  }

 private:
  Status fill(Asked* one) {
    if (!one->prompt.prompt_ids.empty()) {
      one->tokens = one->prompt.prompt_ids;
    } else {
      if (chat_ == nullptr) {
        EAGLET_ASSIGN_OR_RETURN(chat_, ChatTemplate::open(target_));
      }
      EAGLET_ASSIGN_OR_RETURN(one->rendered, chat_->render(one->prompt.messages, one->prompt.tools));
      EAGLET_ASSIGN_OR_RETURN(one->tokens, target_.prompt_ids(one->rendered.text));
    }
    const auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
    if (one->tokens.empty()) return bad("the prompt has no tokens");
    for (const std::int32_t token : one->tokens)
      if (token < 0 || token >= target_.facts().vocab)
        return bad(fmt::format("token id {} is not in the vocabulary", token));
    const auto length = static_cast<std::int64_t>(one->tokens.size());
    const std::int64_t context = target_.facts().max_position_embeddings;
    if (context > 0 && length + max_tokens_ > context)
      return bad(
          fmt::format("too long: {} prompt tokens and {} of answer do not fit the model's context of {}",
                      length, max_tokens_, context));
    return Status();
  }

  const TargetTokens& target_;
  std::int64_t max_tokens_;
  std::unique_ptr<ChatTemplate> chat_;
};

Conversation to_row(const TargetTokens& target, const Asked& asked, const GeneratedAnswer& answer) {
  std::vector<std::string> pieces;
  const std::size_t spoken = answer.tokens.size() - (answer.stopped ? 1 : 0);
  for (std::size_t i = 0; i < spoken; ++i) pieces.push_back(target.piece(answer.tokens[i], /*special=*/true));
  const SplitAnswer split = split_answer(pieces, asked.rendered);
  Conversation row;
  row.id = asked.prompt.id;
  row.prompt_hash = asked.prompt.hash();
  row.tools = asked.prompt.tools;
  row.input_ids = asked.tokens;
  row.input_ids.insert(row.input_ids.end(), answer.tokens.begin(), answer.tokens.end());
  row.loss_mask.assign(asked.tokens.size(), 0);
  row.loss_mask.resize(row.input_ids.size(), 1);
  row.finish_reason = answer.stopped ? "stop" : "length";
  row.text = split.text;
  if (asked.prompt.messages.is_array()) {
    row.messages = asked.prompt.messages;
    Json turn = {{"role", "assistant"}, {"content", split.content}};
    if (split.has_reasoning()) {
      turn["reasoning_content"] = split.reasoning;
      const std::size_t start = asked.tokens.size();
      turn["reasoning_tokens"] = {start + split.reasoning_begin,
                                  start + split.reasoning_end};  // in input_ids, end excluded
    }
    row.messages.push_back(std::move(turn));
  }
  return row;
}

/// The side file names every line and prompt that was left out; no file when there is none.
Status write_skipped(const GenerateOptions& options, const std::vector<BrokenLine>& broken,
                     const std::vector<Refused>& refused, Progress& progress) {
  const std::string path = side_file(options.output_path, "skipped.jsonl");
  if (broken.empty() && refused.empty()) return remove_all(path);
  std::string text;
  for (const BrokenLine& line : broken)
    text += json_line({{"line", line.line}, {"reason", line.reason}}) + "\n";
  for (const Refused& one : refused) text += json_line(one.row) + "\n";
  EAGLET_RETURN_IF_ERROR(write_file_atomic(path, text));
  if (!broken.empty())
    progress.note(
        fmt::format("{} of the prompt lines cannot be used (first: line {}, {}); all are named in {}",
                    broken.size(), broken[0].line, broken[0].reason, path));
  if (!refused.empty())
    progress.note(fmt::format("{} prompts cannot be asked; all are named in {}", refused.size(), path));
  return Status();
}

std::string draft_text(const DraftCounts& drafts) {
  return drafts.passes == 0 ? "" : fmt::format(", {:.2f} tokens a pass", drafts.acceptance_length());
}

Status answer_all(const GenerateOptions& options, const EmbeddedEngine& engine, std::deque<Asked> asked,
                  AnswerFile* answers, GenerateReport* report, Progress& progress) {
  if (asked.empty()) return Status();
  std::size_t longest = 0;
  for (const Asked& one : asked) longest = std::max(longest, one.tokens.size());
  EAGLET_ASSIGN_OR_RETURN(
      const std::unique_ptr<Generator> generator,
      engine.make_generator(asked.size(), static_cast<std::int64_t>(longest) + options.max_tokens,
                            options.keep.layers));
  const double start = monotonic_seconds();
  std::size_t next = 0;
  const Status status = generator->run(
      [&]() -> std::optional<GenerationRequest> {
        if (next == asked.size()) return std::nullopt;
        const Asked& one = asked[next];
        return GenerationRequest{next++, one.tokens, options.max_tokens,
                                 prompt_seed(options.seed, one.prompt.id)};
      },
      [&](const GeneratedAnswer& answer) -> Status {
        ++report->answered;
        report->drafts.add(answer.drafts);
        report->reused_prompt_tokens += answer.reused_tokens;
        const Conversation row = to_row(engine.tokenizer(), asked[answer.tag], answer);
        EAGLET_RETURN_IF_ERROR(answers->append(row));
        return answer.states.empty() ? Status() : options.keep.take(row, answer.states);
      },
      [&](std::int64_t tokens, int in_flight) {
        report->seconds = monotonic_seconds() - start;
        report->tokens_per_second = static_cast<double>(tokens) / std::max(report->seconds, 1e-9);
        progress.update(static_cast<std::uint64_t>(report->already_done + report->answered),
                        fmt::format("{:.0f} tokens/s, {} at once{}", report->tokens_per_second, in_flight,
                                    draft_text(report->drafts)));
        if (interrupted())
          return Status(StatusCode::kInterrupted,
                        fmt::format("stopped by a signal; {} answers are kept", answers->totals().answers),
                        options.output_path, "run the same command again to go on");
        return Status();
      });
  EAGLET_RETURN_IF_ERROR(answers->sync());
  return status;
}

Status foresee_states(const GenerateOptions& options, const EmbeddedEngine& engine,
                      const std::deque<Asked>& asked, Progress& progress) {
  if (options.keep.layers.empty() || !engine.native() || asked.empty()) return {};
  std::vector<std::int64_t> prompt_tokens;
  for (const Asked& one : asked) prompt_tokens.push_back(static_cast<std::int64_t>(one.tokens.size()));
  EAGLET_ASSIGN_OR_RETURN(const std::string text, options.keep.foresee(prompt_tokens, options.max_tokens));
  progress.note(text);
  return {};
}

void add_totals(const AnswerTotals& totals, GenerateReport* report) {
  report->empty_answers = totals.empty;
  report->stopped = totals.stopped;
  report->cut_by_length = totals.cut_by_length;
  report->prompt_tokens = totals.prompt_tokens;
  report->response_tokens = totals.response_tokens;
}

}  // namespace

Result<GenerateReport> generate(const GenerateOptions& options, Progress& progress) {
  EAGLET_RETURN_IF_ERROR(check_options(options));
  if (!options.servers.empty()) return generate_served(options, progress);
  EAGLET_ASSIGN_OR_RETURN(PromptFile prompts, read_prompt_set(options));
  EAGLET_ASSIGN_OR_RETURN(const EmbeddedEngine engine, EmbeddedEngine::open(options, progress));
  EAGLET_ASSIGN_OR_RETURN(AnswerFile answers,
                          AnswerFile::open(options.output_path, settings_of(options, engine)));
  if (answers.cut_bytes() > 0)
    progress.note(fmt::format("a half answer of {} bytes at the file's end was cut off; it is asked again",
                              answers.cut_bytes()));

  GenerateReport report;
  report.prompts = static_cast<std::int64_t>(prompts.prompts.size());
  report.broken_lines = static_cast<std::int64_t>(prompts.broken.size());
  report.lines = static_cast<std::int64_t>(prompts.lines);
  report.blank_lines = static_cast<std::int64_t>(prompts.blank_lines);
  for (const BrokenLine& line : prompts.broken) ++report.left_out[reason_group(line.reason)];
  std::vector<Refused> refused;
  PromptTokens tokens(engine.tokenizer(), options.max_tokens);
  EAGLET_ASSIGN_OR_RETURN(std::deque<Asked> asked, tokens.all(std::move(prompts.prompts), answers, &refused));
  report.too_long = static_cast<std::int64_t>(refused.size());
  report.already_done = report.prompts - report.too_long - static_cast<std::int64_t>(asked.size());
  EAGLET_RETURN_IF_ERROR(write_skipped(options, prompts.broken, refused, progress));

  EAGLET_RETURN_IF_ERROR(foresee_states(options, engine, asked, progress));
  progress.begin("generate", static_cast<std::uint64_t>(report.prompts - report.too_long), "prompts",
                 static_cast<std::uint64_t>(report.already_done));
  EAGLET_RETURN_IF_ERROR(answer_all(options, engine, std::move(asked), &answers, &report, progress));
  add_totals(answers.totals(), &report);
  progress.end(fmt::format("{} answers, {} tokens, {:.0f} tokens/s", answers.totals().answers,
                           report.response_tokens, report.tokens_per_second));
  if (answers.totals().answers == 0)
    return Status(StatusCode::kInvalidArgument, "no prompt could be asked", options.prompts_path,
                  "see " + side_file(options.output_path, "skipped.jsonl"));
  if (report.empty_answers == answers.totals().answers)
    return Status(StatusCode::kInvalidArgument, fmt::format("all {} answers are empty", report.empty_answers),
                  options.output_path,
                  "check that the model is instruction-tuned and that its chat template is right");
  return report;
}

}  // namespace eaglet
