#include "apps/server_probe.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "client/server_facts.h"
#include "extract/foreign_states.h"
#include "extract/states_request.h"
#include "formats/json.h"

namespace eaglet::apps {
namespace {

constexpr double kTokenSeconds = 10, kAskAgainSeconds = 60;
const std::vector<std::int32_t> kIds = {3, 1, 4, 1, 5};  // any vocabulary has them

class HttpServerProbe : public ServerProbe {
 public:
  HttpServerProbe(std::unique_ptr<HttpPool> pool, std::string url, bool want_states)
      : pool_(std::move(pool)), url_(std::move(url)), want_states_(want_states) {}

  Look look() override {
    const Readiness readiness = look_at_server(*pool_, url_, {});
    Look look;
    look.address = readiness.reached > ReadyRung::kAddress;
    look.connection = readiness.reached >= ReadyRung::kConnection;
    look.health = readiness.reached >= ReadyRung::kHealth;
    look.ready = readiness.reached >= ReadyRung::kReady;
    look.final = readiness.final;
    look.model = readiness.facts.model;
    if (!look.ready) {
      const auto next = static_cast<ReadyRung>(static_cast<int>(readiness.reached) + 1);
      look.missing = rung_name(next) + ": " + readiness.problem;
      return look;
    }
    if (!completes_) ask_for_a_token(&look);
    completes_ = look.completes = completes_ || look.completes;
    if (completes_ && want_states_) look_for_states(&look);
    return look;
  }

 private:
  void ask_for_a_token(Look* look) {
    const Json request = {{"model", look->model}, {"prompt", "1"}, {"max_tokens", 1}};
    const HttpReply done = pool_->fetch({.url = url_ + "/v1/completions",
                                         .body = json_line(request),
                                         .timeout_seconds = kTokenSeconds,
                                         .connect_seconds = kTokenSeconds / 2});
    int code = 0;
    look->completes = done.ok();
    if (!done.ok())
      look->missing = done.status == 0 ? "one token: " + done.error
                                       : fmt::format("one token: /v1/completions says {}: {}", done.status,
                                                     error_message(done.body, &code));
  }

  /// States of a few tokens: the name of a file comes back, then the file.
  void look_for_states(Look* look) {
    if (file_.empty() || monotonic_seconds() - asked_ > kAskAgainSeconds) ask_for_states(look);
    if (file_.empty()) return;
    look->missing = "states: " + file_ + " is not there: is the server's folder seen from here?";
    if (!path_exists(file_)) return;
    const auto states = open_foreign_states(StatesLayout::kVllm, file_);
    if (!states.ok()) {
      look->missing = "states: " + states.status().what();  // perhaps half written
      return;
    }
    const bool ours = states->input_ids == kIds;
    if (!ours || states->rows != static_cast<std::int64_t>(kIds.size()) || states->slots.empty()) {
      look->missing = fmt::format("states: {} has {} rows and {} token ids for the {} tokens that were sent",
                                  file_, states->rows, states->input_ids.size(), kIds.size());
      return;
    }
    look->states = true;
    look->missing.clear();
    look->shape = fmt::format("{} slots of {} numbers for each token", states->slots.size(), states->width);
    remove_ours();
  }

  void ask_for_states(Look* look) {
    file_.clear();
    asked_ = monotonic_seconds();
    const StatesAnswer answer = read_states_reply(pool_->fetch({.url = url_ + kStatesRoute,
                                                                .body = states_request(look->model, kIds),
                                                                .timeout_seconds = kTokenSeconds,
                                                                .connect_seconds = kTokenSeconds / 2}),
                                                  kIds);
    if (answer.kind == StatesReply::kFile && answer.file.ends_with(".safetensors"))
      file_ = answer.file;
    else
      look->missing =
          "states: " + (answer.message.empty() ? answer.file + " is no file of states" : answer.message);
    look->final = look->final || answer.kind == StatesReply::kNoConnector;
  }

  /// A file that was read to hold the states of just our tokens, and the lock beside it: nobody else asked
  /// for it.
  void remove_ours() const {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(file_, ignored))) return;
    std::filesystem::remove(file_, ignored);
    std::filesystem::remove(file_ + ".lock", ignored);
  }

  std::unique_ptr<HttpPool> pool_;
  std::string url_, file_;  // file_: of states, as the server named it
  bool want_states_, completes_ = false;
  double asked_ = 0;
};

}  // namespace

Result<std::unique_ptr<ServerProbe>> open_server_probe(const std::string& url, bool want_states) {
  EAGLET_ASSIGN_OR_RETURN(std::string address, server_address(url));
  HttpPoolOptions options;
  options.connections = 1;
  if (const char* key = std::getenv("EAGLET_API_KEY"); key != nullptr) options.bearer = key;
  EAGLET_ASSIGN_OR_RETURN(auto pool, HttpPool::create(options));
  return std::unique_ptr<ServerProbe>(
      std::make_unique<HttpServerProbe>(std::move(pool), std::move(address), want_states));
}

}  // namespace eaglet::apps
