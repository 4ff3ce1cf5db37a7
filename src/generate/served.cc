#include "generate/served.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "client/dispatcher.h"
#include "client/question.h"
#include "client/server_facts.h"
#include "generate/answer_file.h"
#include "generate/prompt_pass.h"
#include "generate/served_record.h"
#include "generate/served_setup.h"
#include "generate/served_talk.h"
#include "generate/side_lines.h"
#include "generate/turn_journal.h"

namespace eaglet {
namespace {

constexpr std::int64_t kFirstAnswers = 16;   // after so many it shows whether a run makes sense
constexpr int kAskings = 3;                  // of one question whose replies are empty or broken
constexpr double kSecondsToDrain = 30;       // for answers under way when a signal came
constexpr double kSecondsBetweenSyncs = 20;  // a power cut loses at most this much

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);  // one thread does it all
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Everything of one run.
class ServedRun {
 public:
  ServedRun(const GenerateOptions& options, Progress& progress)
      : options_(options),
        progress_(progress),
        skipped_(side_file(options.output_path, "skipped.jsonl")),
        failures_(side_file(options.output_path, "failed.jsonl")) {}

  Result<GenerateReport> run() {
    EAGLET_RETURN_IF_ERROR(check_served_options(options_.served));
    EAGLET_ASSIGN_OR_RETURN(regenerate_, regenerate_from_name(options_.served.regenerate));
    sampling_ = {
        .max_tokens = options_.max_tokens, .temperature = options_.temperature, .top_p = options_.top_p};
    EAGLET_ASSIGN_OR_RETURN(sampling_.extra, object_of_flag("--request-json", options_.served.request_json));
    EAGLET_ASSIGN_OR_RETURN(local_, open_local_renderer(options_));
    EAGLET_RETURN_IF_ERROR(open_files());
    EAGLET_RETURN_IF_ERROR(connect());
    EAGLET_RETURN_IF_ERROR(open_answers());
    const double start = monotonic_seconds(), cpu = cpu_seconds();
    started_ = last_sync_ = start;
    const Status status = ask_all();
    report_.seconds = monotonic_seconds() - start;
    report_.served.cpu_seconds = cpu_seconds() - cpu;
    EAGLET_RETURN_IF_ERROR(answers_->sync());
    EAGLET_RETURN_IF_ERROR(finish(status));
    return report_;
  }

 private:
  // ---- before the first request ----

  Status open_files() {
    EAGLET_ASSIGN_OR_RETURN(
        survey_, survey_prompts(options_.prompts_path, regenerate_, options_.max_prompts, &skipped_));
    report_.lines = survey_.lines;
    report_.blank_lines = survey_.blank_lines;
    report_.left_out = survey_.left_out;
    report_.broken_lines = total_of(survey_.left_out);
    report_.prompts = survey_.prompts;
    return {};
  }

  Status connect() {
    EAGLET_ASSIGN_OR_RETURN(ServedConnection connection,
                            connect_servers(options_, local_.renderer != nullptr, progress_));
    server_ = connection.server;
    pool_ = std::move(connection.pool);
    DispatcherOptions dispatch;
    dispatch.servers = connection.urls;
    dispatch.concurrency = static_cast<std::size_t>(options_.served.concurrency);
    dispatch.timeout_seconds = options_.served.timeout_seconds;
    dispatch.retry.tries = static_cast<int>(options_.served.tries);
    dispatch.retry.first_wait_seconds = options_.served.retry_wait_seconds;
    dispatcher_.emplace(*pool_, dispatch);
    return {};
  }

  Status open_answers() {
    settings_ = served_settings(options_, server_, sampling_.extra);
    EAGLET_ASSIGN_OR_RETURN(AnswerFile answers, AnswerFile::open(options_.output_path, settings_));
    answers_.emplace(std::move(answers));
    if (answers_->cut_bytes() > 0)
      progress_.note(fmt::format("a half answer of {} bytes at the file's end was cut off; it is asked again",
                                 answers_->cut_bytes()));
    if (options_.served.cut == "leave-out") {
      EAGLET_ASSIGN_OR_RETURN(AnswerFile cut,
                              AnswerFile::open(side_file(options_.output_path, "cut.jsonl"), settings_));
      cut_answers_.emplace(std::move(cut));
    }
    EAGLET_ASSIGN_OR_RETURN(TurnJournal journal,
                            TurnJournal::open(side_file(options_.output_path, "turns.jsonl")));
    journal_.emplace(std::move(journal));
    EAGLET_RETURN_IF_ERROR(skipped_.commit());
    if (skipped_.lines() > 0)
      progress_.note(fmt::format("{} lines cannot be asked ({}); all are named in {}", skipped_.lines(),
                                 reasons_text(survey_.left_out), skipped_.path()));
    // Failures of an earlier run are asked again: only those of this run are named.
    return failures_.begin();
  }

  // ---- the loop ----

  Status ask_all() {
    EAGLET_ASSIGN_OR_RETURN(PromptSource source,
                            PromptSource::open(options_.prompts_path, regenerate_, survey_));
    bool begun = false;
    for (;;) {
      while (!stopping_ && !exhausted_ && stop_.ok() && dispatcher_->has_room())
        EAGLET_RETURN_IF_ERROR(start_next(&source));
      if (!begun) {
        progress_.begin("generate", static_cast<std::uint64_t>(report_.prompts), "prompts",
                        static_cast<std::uint64_t>(report_.already_done));
        begun = true;
      }
      EAGLET_RETURN_IF_ERROR(stop_);
      if (talks_ == 0 && (exhausted_ || stopping_)) break;
      EAGLET_RETURN_IF_ERROR(dispatcher_->poll(0.1));
      EAGLET_RETURN_IF_ERROR(stop_);
      EAGLET_RETURN_IF_ERROR(tick());
    }
    if (!stopping_) return {};
    return Status(StatusCode::kInterrupted,
                  fmt::format("stopped by a signal; {} answers are kept", answers_->totals().answers),
                  options_.output_path, "run the same command again to go on");
  }

  Status start_next(PromptSource* source) {
    Prompt prompt;
    EAGLET_ASSIGN_OR_RETURN(const bool there, source->next(&prompt));
    if (!there) {
      exhausted_ = true;
      return {};
    }
    EAGLET_RETURN_IF_ERROR(answers_->check_same(prompt));
    if (answers_->has(prompt.id) || (cut_answers_ && cut_answers_->has(prompt.id))) {
      ++report_.already_done;
      return {};
    }
    auto talk = std::make_shared<ServedTalk>(std::move(prompt), regenerate_, options_.seed);
    ++talks_;
    ++report_.served.asked;
    // What a killed run was answered already is not asked again.
    for (const ServedAnswer& answer : journal_->answers(talk->id(), talk->hash())) {
      Asking unused;
      const auto more = talk->next(server_, local_.renderer.get(), &unused);
      if (!more.ok() || !*more || !talk->answer(answer, local_.renderer.get()).ok()) break;
    }
    ask(talk, 0);
    return {};
  }

  void ask(const std::shared_ptr<ServedTalk>& talk, int askings) {
    Asking asking;
    const Result<bool> more = talk->next(server_, local_.renderer.get(), &asking);
    if (!more.ok()) return fail(*talk, more.status());
    if (!*more) return keep(*talk);
    auto question = std::make_shared<Question>(server_, sampling_, std::move(asking));
    send(talk, question, askings);
  }

  void send(const std::shared_ptr<ServedTalk>& talk, const std::shared_ptr<Question>& question, int askings) {
    dispatcher_->send(question->path(), question->body(), [this, talk, question, askings](HttpReply reply) {
      if (!stop_.ok()) return;
      if (reply.status == 401 || reply.status == 403) {
        int code = 0;
        stop_ = Status(StatusCode::kPermission,
                       fmt::format("the server refuses the API key ({}): {}", reply.status,
                                   error_message(reply.body, &code)),
                       server_.url, "set " + options_.served.api_key_env + " to a valid key");
        return;
      }
      if (!question->take(reply)) return send(talk, question, askings);
      take(talk, question->answer(), reply.status, askings);
    });
  }

  void take(const std::shared_ptr<ServedTalk>& talk, const ServedAnswer& answer, int status, int askings) {
    switch (answer.outcome) {
      case Outcome::kAnswer:
        break;
      case Outcome::kEmpty:
      case Outcome::kBroken:
        // A reply without a whole answer may be the moment's fault; the dispatcher has tried the others.
        if (status >= 200 && status < 300 && askings + 1 < kAskings && !stopping_)
          return again(talk, askings);
        return answer.outcome == Outcome::kEmpty ? fail_empty(*talk, answer) : fail_broken(*talk, answer);
      case Outcome::kRefused:
        return fail_refused(*talk, answer);
    }
    failures_in_a_row_ = 0;
    tokens_ += answer.answer_tokens;
    const Status taken = talk->answer(answer, local_.renderer.get());
    if (!taken.ok()) return fail(*talk, taken);
    if (regenerate_ == Regenerate::kAll)
      if (const Status noted = journal_->append(talk->id(), talk->hash(), answer); !noted.ok()) {
        stop_ = noted;
        return;
      }
    ask(talk, 0);
  }

  /// The same question once more: the plan still stands at it.
  void again(const std::shared_ptr<ServedTalk>& talk, int askings) { ask(talk, askings + 1); }

  // ---- what becomes of a talk ----

  void keep(const ServedTalk& talk) {
    --talks_;
    const std::vector<Conversation> rows = talk.rows();
    AnswerFile& file = talk.cut() && cut_answers_ ? *cut_answers_ : *answers_;
    if (const Status status = file.append(rows); !status.ok()) {
      stop_ = status;
      return;
    }
    journal_->forget(talk.id());
    ServedCounts& counts = report_.served;
    ++report_.answered;
    (!talk.cut()                 ? counts.whole
     : talk.cut_while_thinking() ? counts.cut_while_thinking
                                 : counts.cut_in_answer) += 1;
    counts.without_thinking += !talk.has_thinking();
    counts.tokenised_here += talk.tokenised_here();
    if (counts.tokenised_here == 1 && talk.tokenised_here())
      progress_.note(
          "the server gives no token ids: texts are tokenised with the tokenizer and the template given "
          "here, and checked to give the same text back");
    check_thinking();
  }

  void check_thinking() {
    const std::int64_t kept = report_.answered;
    const bool enough = kept >= std::min(kFirstAnswers, report_.prompts - report_.already_done);
    if (!options_.served.expect_thinking || !enough || report_.served.without_thinking < kept) return;
    stop_ =
        Status(StatusCode::kConfig,
               fmt::format("none of the first {} answers has any thinking (looked for in reasoning_content, "
                           "reasoning, thinking and in think tags)",
                           kept),
               server_.url,
               "switch thinking on in the server (its reasoning parser, or chat_template_kwargs in "
               "--request-json), or leave --expect-thinking out; the answers are kept in " +
                   options_.output_path);
  }

  void fail_refused(const ServedTalk& talk, const ServedAnswer& answer) {
    ++report_.served.refused;
    note_failure(talk, "refused by the server", answer.message);
    const std::int64_t first = std::min(kFirstAnswers, report_.prompts);
    if (report_.served.refused >= first && report_.answered == 0 && report_.prompts >= kFirstAnswers)
      stop_ = Status(
          StatusCode::kConfig,
          fmt::format("the server refused the first {} prompts: {}", report_.served.refused, answer.message),
          server_.url, "mend the request (--served-model, --request-json, --max-tokens) or the address");
  }
  void fail_empty(const ServedTalk& talk, const ServedAnswer& answer) {
    ++report_.served.empty;
    note_failure(talk, "empty", answer.message);
  }
  void fail_broken(const ServedTalk& talk, const ServedAnswer& answer) {
    ++report_.served.failed["no usable reply"];
    note_failure(talk, "no usable reply", answer.message);
    if (++failures_in_a_row_ >= std::max<std::int64_t>(kFirstAnswers, options_.served.concurrency))
      stop_ = Status(StatusCode::kUnavailable,
                     fmt::format("{} prompts in a row got no usable reply; the last: {}", failures_in_a_row_,
                                 answer.message),
                     server_.url, "look at the server's log; then run the same command again to go on");
  }
  /// A failure of ours: the template, the tokenizer.
  void fail(const ServedTalk& talk, const Status& why) {
    if (why.code() != StatusCode::kInvalidArgument) {
      stop_ = why;
      return;
    }
    ++report_.served.failed[reason_group(why.what())];
    note_failure(talk, reason_group(why.what()), why.what());
  }
  void note_failure(const ServedTalk& talk, const std::string& kind, const std::string& message) {
    --talks_;
    if (const Status status = failures_.add(talk.id(), kind, message); !status.ok()) stop_ = status;
  }

  // ---- while it lasts ----

  Status tick() {
    const double now = monotonic_seconds();
    const ServedCounts& counts = report_.served;
    const std::int64_t failed = failed_prompts(counts);
    const double elapsed = std::max(now - started_, 1e-9);
    report_.tokens_per_second = static_cast<double>(tokens_) / elapsed;
    progress_.update(
        static_cast<std::uint64_t>(report_.already_done + report_.answered + failed),
        fmt::format("{} running, {} waiting, {} failed, {:.0f} tokens/s{}",
                    dispatcher_->open() - dispatcher_->waiting(), dispatcher_->waiting(), failed,
                    report_.tokens_per_second,
                    dispatcher_->limit() < static_cast<std::size_t>(options_.served.concurrency)
                        ? fmt::format(", at most {} at once: servers are busy", dispatcher_->limit())
                        : ""));
    if (now - last_sync_ > kSecondsBetweenSyncs) {
      EAGLET_RETURN_IF_ERROR(answers_->sync());
      last_sync_ = now;
    }
    if (interrupted() && !stopping_) {
      stopping_ = true;
      stop_by_ = now + kSecondsToDrain;
      if (talks_ > 0)
        progress_.note(fmt::format("stopping: waiting up to {:.0f} s for {} answers that are on their way",
                                   kSecondsToDrain, talks_));
    }
    if (stopping_ && now > stop_by_)
      return Status(StatusCode::kInterrupted,
                    fmt::format("stopped by a signal; {} answers are kept, {} were not waited for",
                                answers_->totals().answers, talks_),
                    options_.output_path, "run the same command again to go on");
    if (dispatcher_->quiet_seconds() > options_.served.stall_seconds &&
        now - last_look_ > options_.served.stall_seconds) {
      last_look_ = now;
      look_at_health();
    }
    return {};
  }

  /// Nothing has come for a while: say how the servers are.
  void look_at_health() {
    for (const std::string& given : options_.servers) {
      const auto address = server_address(given);
      if (!address.ok()) continue;
      const std::string url = *address;
      const double quiet = dispatcher_->quiet_seconds();
      pool_->submit({.url = url + "/health", .timeout_seconds = 5}, [this, url, quiet](HttpReply health) {
        pool_->submit({.url = url + "/metrics", .timeout_seconds = 5},
                      [this, url, quiet, health = std::move(health)](HttpReply metrics) {
                        progress_.note(fmt::format("no reply for {:.0f} s; {}: {}", quiet, url,
                                                   health_text(health, metrics)));
                      });
      });
    }
  }

  // ---- the end ----

  Status finish(const Status& status) {
    ServedCounts& counts = report_.served;
    const DispatchCounts& sent = dispatcher_->counts();
    counts.requests = sent.sent;
    counts.retried = sent.retried;
    counts.busy = sent.busy;
    const std::int64_t failed = failed_prompts(counts);
    counts.not_reached = counts.asked - report_.answered - failed;
    const AnswerTotals& totals = answers_->totals();
    report_.empty_answers = totals.empty;
    report_.stopped = totals.stopped;
    report_.cut_by_length = totals.cut_by_length;
    report_.prompt_tokens = totals.prompt_tokens;
    report_.response_tokens = totals.response_tokens;
    EAGLET_RETURN_IF_ERROR(write_served_manifest(options_, settings_, report_, status));
    EAGLET_RETURN_IF_ERROR(status);
    if (failed == 0) EAGLET_RETURN_IF_ERROR(journal_->remove());
    if (failed > 0)
      progress_.note(
          fmt::format("{} prompts have no answer ({} refused by the server, {} empty{}); all are named "
                      "in {}; the same command asks for them again",
                      failed, counts.refused, counts.empty,
                      counts.failed.empty() ? "" : ", " + reasons_text(counts.failed), failures_.path()));
    if (options_.served.expect_thinking && counts.without_thinking > 0)
      progress_.note(
          fmt::format("{} of {} answers have no thinking", counts.without_thinking, report_.answered));
    if (totals.answers == 0 && (!cut_answers_ || cut_answers_->totals().answers == 0))
      return Status(StatusCode::kUnavailable, "no prompt was answered", options_.servers.front(),
                    "the reasons are in " + failures_.path());
    if (report_.answered > 0)
      progress_.end(fmt::format("{} answers, {} answer tokens, {:.0f} tokens/s", totals.answers,
                                report_.response_tokens, report_.tokens_per_second));
    return {};
  }

  const GenerateOptions& options_;
  Progress& progress_;
  SideLines skipped_;
  FailureLines failures_;
  Json settings_;
  Regenerate regenerate_ = Regenerate::kNone;
  Sampling sampling_;
  ServerFacts server_;
  PromptSurvey survey_;
  GenerateReport report_;
  LocalRenderer local_;
  std::optional<AnswerFile> answers_, cut_answers_;
  std::optional<TurnJournal> journal_;
  std::unique_ptr<HttpPool> pool_;
  std::optional<Dispatcher> dispatcher_;  // after the pool: its requests are dropped with the pool
  Status stop_;                           // set by an answer that ends the run
  bool exhausted_ = false, stopping_ = false;
  std::int64_t talks_ = 0, tokens_ = 0, failures_in_a_row_ = 0;
  double started_ = 0, last_sync_ = 0, stop_by_ = 0, last_look_ = 0;
};

}  // namespace

Result<GenerateReport> generate_served(const GenerateOptions& options, Progress& progress) {
  return ServedRun(options, progress).run();
}

}  // namespace eaglet
