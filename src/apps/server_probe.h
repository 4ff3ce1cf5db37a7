#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace eaglet::apps {

/// Looks at a server again and again: the ladder of the client room (address, connection, health, models, the
/// model), and one rung above it: it completes a token; another one where states are wanted: a file of hidden
/// states of the right shape appears, as vLLM's connector writes it. The monitor-only program has none
/// (without_maths.cc).
class ServerProbe {
 public:
  virtual ~ServerProbe() = default;
  struct Look {
    bool address = false, connection = false, health = false, ready = false, completes = false,
         states = false;  // the rungs
    bool final = false;   // waiting cannot help: a refused key, no such host
    std::string model;    // what it serves
    std::string shape;    // of its states: "4 slots of 7168 numbers for each token"
    std::string missing;  // which rung failed and how: "GET /health says 503: loading"; empty when all hold
  };
  virtual Look look() = 0;
};

/// `url` as server_address() takes it; the key of EAGLET_API_KEY goes along. kUsage, kUnavailable.
Result<std::unique_ptr<ServerProbe>> open_server_probe(const std::string& url, bool want_states);

}  // namespace eaglet::apps
