#pragma once

#include <string>

#include "base/status.h"

namespace eaglet::monitor {

/// One GET over a connection of its own, plain http: for a server's /metrics, once in a while. The monitor
/// room must build alone; whoever asks servers for work uses `client`, over curl.
struct HttpAnswer {
  int status = 0;
  std::string body;
};
/// `host` may be a name or an address. kUnavailable with the reason when no answer came within `seconds` or
/// it is none that HTTP has; a body beyond 8 MB is cut off.
Result<HttpAnswer> http_get(const std::string& host, int port, const std::string& path, double seconds);

/// "http://gpu7:8000/v1" -> "gpu7", 8000. kUsage for anything else, https too.
struct HttpAddress {
  std::string host;
  int port = 80;
};
Result<HttpAddress> http_address(const std::string& url);
/// Whether it is this machine by one of its loopback names.
bool is_loopback(const std::string& host);

}  // namespace eaglet::monitor
