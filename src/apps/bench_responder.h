#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"

namespace eaglet::apps {

/// A server on this machine for `eaglet bench generate`: speaks as much of vLLM as the client asks for,
/// answers every chat at once with the same reply. One thread, on a free port of 127.0.0.1; ends with the
/// object.
class BenchResponder {
 public:
  /// kUnavailable (no port).
  static Result<std::unique_ptr<BenchResponder>> start(std::int64_t answer_tokens);
  ~BenchResponder();
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  BenchResponder() = default;
  void serve();
  int listener_ = -1, port_ = 0;
  std::string chat_reply_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace eaglet::apps
