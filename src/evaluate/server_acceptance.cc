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
  std::vector<std::int32_t> prompt, answer;
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
    const auto end = std::find(c.loss_mask.begin() + prompt, c.loss_mask.end(), 0) - c.loss_mask.begin();
    rows.push_back({{c.input_ids.begin(), c.input_ids.begin() + prompt},
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
    const Counters before = counters();
    EAGLET_RETURN_IF_ERROR(ask_all());
    EAGLET_RETURN_IF_ERROR(add_up(before, counters()));
    return result_;
  }

 private:
  Counters counters() {
    const HttpReply page = pool_->fetch({.url = server_.url + "/metrics", .timeout_seconds = 10});
    return page.ok() ? counters_of(page.body) : Counters();
  }

  Status ask_all() {
    Dispatcher dispatcher(
        *pool_, {.servers = {server_.url},
                 .concurrency = static_cast<std::size_t>(std::max<std::int64_t>(1, options_.concurrency)),
                 .timeout_seconds = options_.timeout_seconds});
    progress_.begin("evaluate on the server", rows_.size(), "prompts");
    std::size_t next = 0, finished = 0;
    while (finished < rows_.size()) {
      while (next < rows_.size() && dispatcher.has_room()) {
        const Row& row = rows_[next++];
        Asking asking;
        asking.prompt_ids = row.prompt;
        auto sampling = std::make_shared<Sampling>();
        sampling->max_tokens =
            options_.max_tokens > 0 ? options_.max_tokens : static_cast<std::int64_t>(row.answer.size());
        auto question = std::make_shared<Question>(server_, *sampling, std::move(asking));
        dispatcher.send(question->path(), question->body(),
                        [this, &row, &finished, question, sampling](HttpReply reply) {
                          question->take(reply);
                          take(row, question->answer());
                          ++finished;
                        });
      }
      EAGLET_RETURN_IF_ERROR(dispatcher.poll(0.1));
      progress_.update(finished);
      if (interrupted())
        return Status(StatusCode::kInterrupted, "stopped by a signal; nothing was measured", server_.url);
    }
    progress_.end(fmt::format("{} prompts answered, {} not", result_.prompts, result_.failed));
    if (result_.prompts > 0) return {};
    return Status(StatusCode::kUnavailable, "the server answered none of the prompts: " + last_problem_,
                  server_.url, "check that it serves the model whose tokenizer wrote the conversations");
  }

  void take(const Row& row, const ServedAnswer& answer) {
    // An empty text is an answer here: its end token was generated.
    if (answer.outcome == Outcome::kRefused || answer.outcome == Outcome::kBroken) {
      ++result_.failed;
      last_problem_ = answer.message;
      return;
    }
    ++result_.prompts;
    result_.tokens += static_cast<double>(answer.answer_ids.size());
    std::size_t same = 0;
    while (same < std::min(row.answer.size(), answer.answer_ids.size()) &&
           row.answer[same] == answer.answer_ids[same])
      ++same;
    same_ += static_cast<double>(same);
    recorded_ += static_cast<double>(row.answer.size());
    if (answer.drafted >= 0) from_answers_.drafted += static_cast<double>(answer.drafted);
    if (answer.accepted >= 0) {
      from_answers_.accepted += static_cast<double>(answer.accepted);
      from_answers_.told = true;
    }
    if (answer.passes > 0) {  // the prompt's pass gives the first token
      from_answers_.drafts += static_cast<double>(answer.passes);
      from_answers_.accepted += static_cast<double>(
          std::max<std::int64_t>(0, static_cast<std::int64_t>(answer.answer_ids.size()) - 1 - answer.passes));
      from_answers_.told = true;
    }
  }

  Status add_up(const Counters& before, const Counters& after) {
    result_.same_share = recorded_ > 0 ? same_ / recorded_ : 0;
    Counters counted = after;
    counted.drafts -= before.drafts;
    counted.drafted -= before.drafted;
    counted.accepted -= before.accepted;
    for (std::size_t i = 0; i < before.at.size() && i < counted.at.size(); ++i) counted.at[i] -= before.at[i];
    if (from_answers_.told) {  // exact for these prompts, whoever else uses the server
      counted.drafted = from_answers_.drafted;
      counted.accepted = from_answers_.accepted;
      if (from_answers_.drafts > 0) counted.drafts = from_answers_.drafts;
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
  Counters from_answers_;
  double same_ = 0, recorded_ = 0;
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
  const double passes = walked.tokens - walked.accepted;
  const bool first_fails = served.accepted_at.empty() || served.drafts <= 0 || passes <= 0 ||
                           served.accepted_at[0] / served.drafts < 0.5 * first_walked / passes;
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
