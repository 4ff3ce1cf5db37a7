#pragma once

#include "client/server_facts.h"

namespace eaglet::apps {

/// Looks at a server again and again: the ladder of the client room (address, connection, health, models, the
/// model), and one rung above it: it completes a token.
class ServerProbe {
 public:
  /// `url` as server_address() takes it; the key of EAGLET_API_KEY goes along. kUsage.
  static Result<ServerProbe> open(const std::string& url);

  struct Look {
    Readiness readiness;
    bool completes = false;
    /// Which rung failed and how: "GET /health says 503: loading"; empty when all hold.
    std::string missing;
  };
  Look look();

 private:
  ServerProbe(std::unique_ptr<HttpPool> pool, std::string url)
      : pool_(std::move(pool)), url_(std::move(url)) {}
  std::unique_ptr<HttpPool> pool_;
  std::string url_;
};

}  // namespace eaglet::apps
