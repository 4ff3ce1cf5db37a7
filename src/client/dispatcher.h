#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "client/http_pool.h"
#include "client/retry.h"

namespace eaglet {

struct DispatcherOptions {
  std::vector<std::string> servers = {};  // "http://host:8000", without a path
  std::size_t concurrency = 64;      // over all servers
  double timeout_seconds = 600;
  RetryPolicy retry = {};
};

/// What has happened so far.
struct DispatchCounts {
  std::int64_t sent = 0, retried = 0, busy = 0, broken = 0, timed_out = 0;
};

/// Sends requests to several equal servers in turn, sends those again that are worth it, and holds back when
/// the servers are busy. A server that fails is left alone for a while when there is another. Not
/// thread-safe.
class Dispatcher {
 public:
  Dispatcher(HttpPool& pool, DispatcherOptions options);
  /// `done` gets the reply of the last try. `body` empty: GET.
  void send(const std::string& path, const std::string& body, HttpPool::Done done);
  /// May another request be sent without overloading the servers?
  bool has_room() const { return open_ < limit_.limit(); }
  std::size_t limit() const { return limit_.limit(); }
  std::size_t open() const { return open_; }               // sent or waiting to be sent again
  std::size_t waiting() const { return waiting_.size(); }  // of those, waiting
  const DispatchCounts& counts() const { return counts_; }
  /// Seconds since a reply came, or since something was sent when nothing was in flight before.
  double quiet_seconds() const;
  /// Moves all on; waits at most so long.
  Status poll(double seconds);

 private:
  struct Server {
    std::string url = {};
    double rest_until = 0;
    int failures = 0;  // one after another
  };
  struct Errand {
    std::string path, body;
    HttpPool::Done done;
    int tries = 0;
  };
  std::size_t pick_server();
  void begin(std::shared_ptr<Errand> errand);
  void take(const std::shared_ptr<Errand>& errand, std::size_t server, HttpReply reply);
  void judge_server(std::size_t server, const HttpReply& reply);

  HttpPool& pool_;
  DispatcherOptions options_;
  std::vector<Server> servers_;
  ConcurrencyLimit limit_;
  std::multimap<double, std::shared_ptr<Errand>> waiting_;  // by the time of the next try
  std::size_t next_server_ = 0, open_ = 0;
  double last_news_ = 0;
  DispatchCounts counts_;
  Rng rng_;
};

}  // namespace eaglet
