#include "client/dispatcher.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace eaglet {
namespace {
constexpr double kRestSeconds = 5;  // of a server that did not answer, while others do
}  // namespace

Dispatcher::Dispatcher(HttpPool& pool, DispatcherOptions options)
    : pool_(pool),
      options_(std::move(options)),
      limit_(std::max<std::size_t>(1, options_.concurrency)),
      last_news_(monotonic_seconds()),
      rng_(static_cast<std::uint64_t>(wall_seconds() * 1e6)) {
  for (const std::string& url : options_.servers) servers_.push_back({.url = url});
}

double Dispatcher::quiet_seconds() const {
  return monotonic_seconds() - last_news_;
}

std::size_t Dispatcher::pick_server() {
  const double now = monotonic_seconds();
  std::size_t best = next_server_ % servers_.size();
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    const std::size_t at = (next_server_ + i) % servers_.size();
    if (servers_[at].rest_until <= now) {
      best = at;
      break;
    }
    if (servers_[at].rest_until < servers_[best].rest_until) best = at;
  }
  next_server_ = (best + 1) % servers_.size();
  return best;
}

void Dispatcher::send(const std::string& path, const std::string& body, HttpPool::Done done) {
  if (open_ == 0) last_news_ = monotonic_seconds();
  ++open_;
  begin(std::make_shared<Errand>(Errand{path, body, std::move(done)}));
}

void Dispatcher::begin(std::shared_ptr<Errand> errand) {
  const std::size_t server = pick_server();
  ++errand->tries;
  ++counts_.sent;
  const HttpRequest request = {.url = servers_[server].url + errand->path,
                               .body = errand->body,
                               .timeout_seconds = options_.timeout_seconds};
  pool_.submit(request, [this, errand, server](HttpReply reply) { take(errand, server, std::move(reply)); });
}

void Dispatcher::judge_server(std::size_t server, const HttpReply& reply) {
  Server& one = servers_[server];
  const bool dead = reply.failure == HttpFailure::kNoConnection || reply.failure == HttpFailure::kBroken ||
                    reply.failure == HttpFailure::kNoHost;
  one.failures = dead ? one.failures + 1 : 0;
  if (dead) one.rest_until = monotonic_seconds() + kRestSeconds * std::min(one.failures, 6);
}

void Dispatcher::take(const std::shared_ptr<Errand>& errand, std::size_t server, HttpReply reply) {
  last_news_ = monotonic_seconds();
  judge_server(server, reply);
  counts_.busy += server_is_busy(reply);
  counts_.timed_out += reply.failure == HttpFailure::kTimeout;
  counts_.broken += reply.failure != HttpFailure::kNone && reply.failure != HttpFailure::kTimeout;
  if (server_is_busy(reply)) limit_.was_busy(last_news_);
  if (reply.ok()) limit_.succeeded();
  if (worth_retrying(reply) && errand->tries < options_.retry.tries) {
    ++counts_.retried;
    // A dead server's requests go to a living one at once.
    const bool other = servers_.size() > 1 && reply.status == 0;
    const double wait = other ? 0 : seconds_before_retry(options_.retry, errand->tries, reply, &rng_);
    waiting_.emplace(last_news_ + wait, errand);
    return;
  }
  --open_;
  errand->done(std::move(reply));
}

Status Dispatcher::poll(double seconds) {
  const double now = monotonic_seconds();
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    std::shared_ptr<Errand> errand = waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    begin(std::move(errand));
  }
  if (!waiting_.empty()) seconds = std::min(seconds, waiting_.begin()->first - now);
  return pool_.poll(std::max(seconds, 0.001));
}

}  // namespace eaglet
