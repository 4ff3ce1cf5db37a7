#include "evaluate/server_acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "base/interrupt.h"
#include "client/dispatcher.h"
#include "client/metrics_text.h"
#include "client/question.h"
#include "formats/conversations.h"

namespace eaglet {
namespace {

constexpr double kGoodRatio = 0.9;
constexpr double kEnoughAccepted = 30;
constexpr double kSameAnswers = 0.98;   // a share of the recorded tokens: beyond it what differs is rounding
constexpr std::size_t kEnoughSame = 4;  // tokens of an answer: nothing is drafted for the first
constexpr double kEnoughTokens = 30;    // over all answers

/// Counters of a server's metrics page; they only grow.
struct Counters {
  bool told = false;
  double drafts = 0, drafted = 0, accepted = 0;
  std::vector<double> at;
};

Counters counters_of(const std::string& page) {
  Counters counters;
  const auto samples = parse_metrics(page);
  for (const char* prefix : {"vllm:spec_decode_num_", "llamacpp:spec_decode_num_"}) {
    const std::string name(prefix);
    for (const MetricSample& sample : samples) {
      if (sample.name != name + "accepted_tokens_per_pos_total") continue;
      const auto position = sample.labels.find("position");
      if (position == sample.labels.end() || position->second.size() > 2) continue;
      const auto at = static_cast<std::size_t>(std::atoi(position->second.c_str()));
      counters.at.resize(std::max(counters.at.size(), at + 1));
      counters.at[at] += sample.value;
    }
    counters.drafts += metric_sum(samples, name + "drafts_total", 0);
    counters.drafted += metric_sum(samples, name + "draft_tokens_total", 0);
    counters.accepted += metric_sum(samples, name + "accepted_tokens_total", 0);
    counters.told = counters.told || metric_sum(samples, name + "drafts_total", -1) >= 0;
  }
  return counters;
}

struct Row {
  std::string id;
  std::vector<std::int32_t> prompt, answer;
};

/// What one round of questions gave.
struct Round {
  std::int64_t prompts = 0, failed = 0;
  double tokens = 0, same = 0, recorded = 0;  // answered; of the recorded ones, how many again; recorded
  Counters told;                              // by the answers themselves
  std::vector<std::size_t> wrote, agreed;  // by row: tokens answered, and of those from the first on recorded
};

Result<std::vector<Row>> rows_to_ask(const ServerAcceptanceOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const ConversationFile file, read_conversations(options.conversations_path));
  std::set<std::string> wanted(options.ids.begin(), options.ids.end());
  std::vector<Row> rows;
  for (const Conversation& c : file.conversations) {
    if (!options.ids.empty() && wanted.erase(c.id) == 0) continue;
    const auto prompt = static_cast<std::ptrdiff_t>(c.prompt_tokens());
    if (prompt == 0 || static_cast<std::size_t>(prompt) == c.input_ids.size()) continue;
    // The first answer only: what follows it in a talk was asked by somebody else.
    auto end = std::find(c.loss_mask.begin() + prompt, c.loss_mask.end(), 0) - c.loss_mask.begin();
    if (const auto stored = options.stored_tokens.find(c.id); stored != options.stored_tokens.end())
      end = std::min<std::ptrdiff_t>(end, stored->second);
    if (end <= prompt) continue;  // its answer was cut away
    rows.push_back({c.id,
                    {c.input_ids.begin(), c.input_ids.begin() + prompt},
                    {c.input_ids.begin() + prompt, c.input_ids.begin() + end}});
  }
  if (!wanted.empty())
    return Status(StatusCode::kNotFound, "no row has the id " + *wanted.begin(), options.conversations_path);
  if (rows.empty())
    return Status(StatusCode::kInvalidArgument, "no row has a prompt and an answer",
                  options.conversations_path);
  return rows;
}

class ServerMeasurement {
 public:
  ServerMeasurement(const ServerAcceptanceOptions& options, Progress& progress)
      : options_(options), progress_(progress) {}

  Result<ServerAcceptance> run() {
    EAGLET_ASSIGN_OR_RETURN(rows_, rows_to_ask(options_));
    HttpPoolOptions how;
    how.ca_file = options_.ca_file;
    if (const char* key = std::getenv(options_.api_key_env.c_str())) how.bearer = key;
    EAGLET_ASSIGN_OR_RETURN(pool_, HttpPool::create(how));
    EAGLET_ASSIGN_OR_RETURN(
        server_,
        probe_server(*pool_, options_.url, {.model = options_.model, .kind = options_.kind}, progress_));
    result_.url = server_.url;
    result_.kind = server_kind_name(server_.kind);
    result_.model = server_.model;
    Counters before = counters();
    EAGLET_ASSIGN_OR_RETURN(Round round, ask_all());
    result_.same_share = round.recorded > 0 ? round.same / round.recorded : 0;
    if (options_.for_walk && result_.same_share < kSameAnswers) {
      EAGLET_RETURN_IF_ERROR(keep_agreed(round));
      before = counters();
      EAGLET_ASSIGN_OR_RETURN(round, ask_all());
      result_.asked_again = true;
    }
    EAGLET_RETURN_IF_ERROR(add_up(round, before, counters()));
    return result_;
  }

 private:
  Counters counters() {
    const HttpReply page = pool_->fetch({.url = server_.url + "/metrics", .timeout_seconds = 10});
    return page.ok() ? counters_of(page.body) : Counters();
  }

  std::int64_t most_tokens(const Row& row) const {
    const auto recorded = static_cast<std::int64_t>(row.answer.size());
    if (options_.max_tokens == 0) return recorded;
    return options_.for_walk ? std::min(options_.max_tokens, recorded) : options_.max_tokens;
  }

  Result<Round> ask_all() {
    Round round;  // before the dispatcher, whose replies go into it
    round.wrote.resize(rows_.size());
    round.agreed.resize(rows_.size());
    std::size_t next = 0, finished = 0;
    Dispatcher dispatcher(
        *pool_, {.servers = {server_.url},
                 .concurrency = static_cast<std::size_t>(std::max<std::int64_t>(1, options_.concurrency)),
                 .timeout_seconds = options_.timeout_seconds});
    progress_.begin("evaluate on the server", rows_.size(), "prompts");
    while (finished < rows_.size()) {
      while (next < rows_.size() && dispatcher.has_room()) {
        const std::size_t at = next++;
        Asking asking;
        asking.prompt_ids = rows_[at].prompt;
        auto sampling = std::make_shared<Sampling>();
        sampling->max_tokens = most_tokens(rows_[at]);
        auto question = std::make_shared<Question>(server_, *sampling, std::move(asking));
        dispatcher.send(question->path(), question->body(),
                        [this, at, &round, &finished, question, sampling](HttpReply reply) {
                          question->take(reply);
                          take(at, question->answer(), &round);
                          ++finished;
                        });
      }
      EAGLET_RETURN_IF_ERROR(dispatcher.poll(0.1));
      progress_.update(finished);
      if (interrupted())
        return Status(StatusCode::kInterrupted, "stopped by a signal; nothing was measured", server_.url);
    }
    progress_.end(fmt::format("{} prompts answered, {} not", round.prompts, round.failed));
    if (round.prompts > 0) return round;
    return Status(StatusCode::kUnavailable, "the server answered none of the prompts: " + last_problem_,
                  server_.url, "check that it serves the model whose tokenizer wrote the conversations");
  }

  void take(std::size_t at, const ServedAnswer& answer, Round* round) {
    // An empty text is an answer here: its end token was generated.
    if (answer.outcome == Outcome::kRefused || answer.outcome == Outcome::kBroken) {
      ++round->failed;
      last_problem_ = answer.message;
      return;
    }
    const std::vector<std::int32_t>& recorded = rows_[at].answer;
    const auto first_other =
        std::mismatch(recorded.begin(), recorded.end(), answer.answer_ids.begin(), answer.answer_ids.end())
            .first;
    round->wrote[at] = answer.answer_ids.size();
    round->agreed[at] = static_cast<std::size_t>(first_other - recorded.begin());
    ++round->prompts;
    round->tokens += static_cast<double>(answer.answer_ids.size());
    round->same += static_cast<double>(round->agreed[at]);
    round->recorded += static_cast<double>(std::min(
        recorded.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, most_tokens(rows_[at])))));
    add_told(answer, &round->told);
  }

  static void add_told(const ServedAnswer& answer, Counters* told) {
    if (answer.drafted >= 0) told->drafted += static_cast<double>(answer.drafted);
    if (answer.accepted >= 0) {
      told->accepted += static_cast<double>(answer.accepted);
      told->told = true;
    }
    if (answer.passes > 0) {  // the prompt's pass gives the first token
      told->drafts += static_cast<double>(answer.passes);
      told->accepted += static_cast<double>(
          std::max<std::int64_t>(0, static_cast<std::int64_t>(answer.answer_ids.size()) - 1 - answer.passes));
      told->told = true;
    }
  }

  /// Cuts every row to what the server says of it too; leaves out those of which that is nothing to draft.
  Status keep_agreed(const Round& round) {
    if (round.tokens == 0)
      return Status(StatusCode::kUnavailable, "the server gives no token ids with its answers", server_.url,
                    "what it accepts can be held against the walk for vLLM, SGLang and llama-server");
    std::vector<Row> kept;
    double tokens = 0;
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      if (round.agreed[at] < kEnoughSame) continue;
      kept.push_back(std::move(rows_[at]));
      kept.back().answer.resize(round.agreed[at]);
      tokens += static_cast<double>(round.agreed[at]);
    }
    rows_ = std::move(kept);
    if (tokens >= kEnoughTokens) return {};
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("the server writes other answers than the recorded ones ({:.1f} % of their tokens "
                    "again), so there is nothing to hold our walk against",
                    100 * result_.same_share),
        server_.url,
        "let this server write the answers (eaglet generate --server), take states of them and compare "
        "over those; if it did write them: sampling that it forces, or other weights of the target");
  }

  Status add_up(const Round& round, const Counters& before, const Counters& after) {
    result_.prompts = round.prompts;
    result_.failed = round.failed;
    result_.tokens = round.tokens;
    for (std::size_t at = 0; at < rows_.size(); ++at)
      if (round.wrote[at] > 0)
        result_.answer_tokens[rows_[at].id] = static_cast<std::int64_t>(round.wrote[at]);
    Counters counted = after;
    counted.drafts -= before.drafts;
    counted.drafted -= before.drafted;
    counted.accepted -= before.accepted;
    for (std::size_t i = 0; i < before.at.size() && i < counted.at.size(); ++i) counted.at[i] -= before.at[i];
    if (round.told.told) {  // exact for these prompts, whoever else uses the server
      counted.drafted = round.told.drafted;
      counted.accepted = round.told.accepted;
      if (round.told.drafts > 0) counted.drafts = round.told.drafts;
      result_.source = server_.kind == ServerKind::kSglang ? "meta_info" : "timings";
    } else if (after.told) {
      result_.source = "metrics";
    } else {
      return Status(StatusCode::kUnavailable,
                    "the server tells nothing about drafted tokens, neither in its answers nor in /metrics",
                    server_.url,
                    "start it with the draft (docs/serving.md), and with --metrics where it needs that");
    }
    result_.drafts = counted.drafts;
    result_.drafted = counted.drafted;
    result_.accepted = counted.accepted;
    result_.accepted_at = counted.at;
    result_.draft_length =
        options_.draft_length > 0 ? options_.draft_length : static_cast<std::int64_t>(counted.at.size());
    return {};
  }

  const ServerAcceptanceOptions& options_;
  Progress& progress_;
  std::vector<Row> rows_;
  std::unique_ptr<HttpPool> pool_;
  ServerFacts server_;
  ServerAcceptance result_;
  std::string last_problem_;
};

}  // namespace

Result<ServerAcceptance> measure_server(const ServerAcceptanceOptions& options, Progress& progress) {
  return ServerMeasurement(options, progress).run();
}

ServerVerdict judge_server(const ServerAcceptance& served, const WalkedAcceptance& walked) {
  ServerVerdict verdict;
  verdict.walked = walked.acceptance_length();
  verdict.ratio = verdict.walked > 0 ? served.acceptance_length() / verdict.walked : 0;
  const double served_share = served.tokens > 0 ? served.accepted / served.tokens : 0;
  const double walked_share = walked.tokens > 0 ? walked.accepted / walked.tokens : 0;
  const bool few = walked.accepted >= kEnoughAccepted && served_share < 0.5 * walked_share;
  verdict.good = verdict.ratio >= kGoodRatio && !few;
  if (verdict.good) return verdict;
  const double first_walked = walked.accepted_at.empty() ? 0 : walked.accepted_at[0];
  const bool first_fails = served.accepted_at.empty() || served.drafts <= 0 || walked.drafts <= 0 ||
                           served.accepted_at[0] / served.drafts < 0.5 * first_walked / walked.drafts;
  const std::string map = "the draft-to-target map: missing, or absolute ids read as offsets (d2t)";
  const std::string layers =
      "the captured layers: ids counted from another end, or the server's default instead of the draft's";
  const std::string rope = "RoPE settings (theta, scaling) that the server's loader does not read";
  const std::string norms =
      "norm flags (norm_before_residual, norm_before_fc, fc_norm, norm_output) that it does not know";
  const std::string sampling = fmt::format(
      "sampling: {:.0f} % of the answers' tokens are the recorded ones; a temperature, penalties, or "
      "other weights of the target",
      100 * served.same_share);
  // Nothing accepted even at the first position points at the map and the layers; a first position that holds
  // and later ones that do not point at what is fed back.
  verdict.causes = first_fails ? std::vector<std::string>{map, layers, rope, norms, sampling}
                               : std::vector<std::string>{rope, norms, layers, map, sampling};
  if (served.same_share < 0.5)
    std::rotate(verdict.causes.begin(), verdict.causes.end() - 1, verdict.causes.end());
  return verdict;
}

}  // namespace eaglet
