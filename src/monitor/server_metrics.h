#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/http_get.h"
#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// What a server says of itself in Prometheus' text: vLLM ("vllm:"), llama-server ("llamacpp:"), SGLang
/// ("sglang:"), summed over engines and models. Anything else in the page is ignored; a page with nothing of
/// these is not known.
ServerMoment server_moment(std::string_view page);

/// Asks the server that a watched run is, every few seconds, for its /metrics.
class ServerLook {
 public:
  /// The user named it.
  void set_address(const HttpAddress& address) { address_ = address; }
  /// Whether look() would do anything now.
  bool due(double now) const { return now >= next_; }
  bool has_address() const { return !address_.host.empty(); }
  /// Where the command line is one of such a server and one of `tree` listens on the port that it names (else
  /// on the server's usual one), asks there; no other port of a run is ever spoken to.
  void look(const ProcReader& reader, const std::set<std::int64_t>& tree,
            const std::vector<std::string>& commands, double now, RunView* view);

 private:
  void find(const ProcReader& reader, const std::set<std::int64_t>& tree, const std::string& command);
  HttpAddress address_;
  double next_ = -1;
};

}  // namespace eaglet::monitor
