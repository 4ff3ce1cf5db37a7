#include "client/retry.h"

#include <algorithm>
#include <cmath>

namespace eaglet {

bool worth_retrying(const HttpReply& reply) {
  switch (reply.failure) {
    case HttpFailure::kNone:
      break;
    case HttpFailure::kNoHost:
    case HttpFailure::kTls:
      return false;
    case HttpFailure::kNoConnection:
    case HttpFailure::kTimeout:
    case HttpFailure::kBroken:
      return true;
  }
  const int status = reply.status;
  // 501 and 505 say that the server cannot do this at all.
  return status == 408 || status == 409 || status == 425 || status == 429 ||
         (status >= 500 && status != 501 && status != 505);
}

bool server_is_busy(const HttpReply& reply) {
  return reply.status == 429 || reply.status == 503;
}

double seconds_before_retry(const RetryPolicy& policy, int tries_done, const HttpReply& reply, Rng* rng) {
  if (reply.retry_after_seconds >= 0)
    return std::min(reply.retry_after_seconds, policy.longest_retry_after_seconds);
  const double doubled = policy.first_wait_seconds * std::exp2(std::min(tries_done, 30) - 1);
  return std::min(doubled, policy.longest_wait_seconds) * (0.5 + 0.5 * rng->uniform());
}

}  // namespace eaglet
