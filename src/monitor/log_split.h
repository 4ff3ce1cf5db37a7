#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace eaglet::monitor {

/// Cuts a growing log into segments at '\n' and at '\r' (progress bars redraw with it). The result does not
/// depend on how the bytes were handed over. Bytes of one segment beyond kLongest are dropped, so a file
/// without any newline needs no more memory than that.
class LogSplitter {
 public:
  static constexpr std::size_t kLongest = 64 * 1024;
  /// `ended_line`: the segment ended with '\n' (else a redraw follows).
  using Sink = std::function<void(std::string_view segment, bool ended_line)>;

  void feed(std::string_view bytes, const Sink& sink);
  /// What came after the last end, not final yet.
  const std::string& tail() const { return tail_; }
  void clear() { tail_.clear(); }

 private:
  void add(std::string_view bytes);
  std::string tail_;
};

}  // namespace eaglet::monitor
