#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// TensorBoard records (docs/formats/runlog.md): framing with masked CRC-32C, and the two payloads we write.
std::string frame_record(std::string_view payload);
std::string version_event(double wall_time_seconds);
/// One event with several scalars of the same step. NaN and infinity are legal values.
std::string scalars_event(double wall_time_seconds, std::int64_t step,
                          const std::vector<std::pair<std::string, double>>& scalars);

/// Writes one `events.out.tfevents.<seconds>.<host>.<pid>.<n>` file into a directory; one write(2) per call,
/// so TensorBoard may read along. Every start of a run makes a new file: the reader merges them, later files
/// win. Not thread-safe.
class EventWriter {
 public:
  static Result<EventWriter> open(const std::string& directory);
  EventWriter(EventWriter&& other) noexcept;
  EventWriter& operator=(EventWriter&&) = delete;
  ~EventWriter();
  Status write(double wall_time_seconds, std::int64_t step,
               const std::vector<std::pair<std::string, double>>& scalars);
  const std::string& path() const { return path_; }

 private:
  EventWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status append(const std::string& bytes);
  int fd_ = -1;
  std::string path_;
};

}  // namespace eaglet
