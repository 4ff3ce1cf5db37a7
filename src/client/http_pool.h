#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace eaglet {

struct HttpRequest {
  std::string url = {};
  std::string body = {};              // sent as JSON with POST; empty: GET
  double timeout_seconds = 600;  // for the whole exchange
  double connect_seconds = 10;   // of that, until the connection stands
};

/// Why there is no whole reply.
enum class HttpFailure { kNone, kNoHost, kNoConnection, kTls, kTimeout, kBroken };

struct HttpReply {
  int status = 0;  // 0: no whole reply, see `failure`
  std::string body;
  double retry_after_seconds = -1;  // the server's own wish; -1: none
  HttpFailure failure = HttpFailure::kNone;
  std::string error;  // curl's words
  bool ok() const { return status >= 200 && status < 300; }
};

struct HttpPoolOptions {
  std::size_t connections = 64;  // kept open
  std::string bearer;            // API key; never logged
  std::string ca_file;           // certificates to trust instead of the system's
};

/// Many HTTP exchanges at once on the calling thread. Connections are kept and used again. A reply longer
/// than 256 MiB counts as broken. Not thread-safe.
class HttpPool {
 public:
  using Done = std::function<void(HttpReply)>;
  /// kNoSpace.
  static Result<std::unique_ptr<HttpPool>> create(const HttpPoolOptions& options);
  virtual ~HttpPool() = default;
  /// Begins an exchange; `done` is called from poll(). It may submit again.
  virtual void submit(const HttpRequest& request, Done done) = 0;
  /// Moves all exchanges on, waits at most so long for the network. kUnavailable (curl itself failed).
  virtual Status poll(double seconds) = 0;
  virtual std::size_t in_flight() const = 0;
  /// One exchange, waited for. Other exchanges move on meanwhile.
  HttpReply fetch(const HttpRequest& request);
};

}  // namespace eaglet
