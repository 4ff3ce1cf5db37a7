#pragma once

#include "base/rng.h"
#include "client/http_pool.h"

namespace eaglet {

struct RetryPolicy {
  int tries = 6;                  // in all
  double first_wait_seconds = 1;  // doubled with each try
  double longest_wait_seconds = 60;
  double longest_retry_after_seconds = 600;  // a server that wants more is not waited for that long
};

/// Is the same request worth sending again? Yes for 408, 409, 425, 429, 5xx, broken connections and
/// time-outs; no when the request itself is at fault or the address is wrong.
bool worth_retrying(const HttpReply& reply);
/// Did the server say that it has too much to do (429, 503)?
bool server_is_busy(const HttpReply& reply);

/// Seconds to wait after try number `tries_done` (from 1): the server's own wish when it has one, else
/// doubling with half of it drawn by lot, so that many clients do not come back at once.
double seconds_before_retry(const RetryPolicy& policy, int tries_done, const HttpReply& reply, Rng* rng);

/// How many requests may be in flight: one step up after each full round of successes, half after a busy
/// answer (once a second at most: all requests in flight then bring the same news).
class ConcurrencyLimit {
 public:
  explicit ConcurrencyLimit(std::size_t most) : most_(most), limit_(static_cast<double>(most)) {}
  std::size_t limit() const { return static_cast<std::size_t>(limit_); }
  void succeeded() {
    if (limit_ < static_cast<double>(most_)) limit_ += 1.0 / limit_;
    if (limit_ > static_cast<double>(most_)) limit_ = static_cast<double>(most_);
  }
  void was_busy(double now_seconds) {
    if (now_seconds - lowered_ < 1.0) return;
    lowered_ = now_seconds;
    limit_ = limit_ > 2 ? limit_ / 2 : 1;
  }

 private:
  std::size_t most_;
  double limit_, lowered_ = -1e9;
};

}  // namespace eaglet
