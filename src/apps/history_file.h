#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "apps/watch_history.h"
#include "base/files.h"

namespace eaglet::apps {

/// Keeps what a watcher saw beyond its own life: one JSON object a line (docs/formats/watch-history.md),
/// appended whole, so that neither a kill nor a second start loses more than the newest ten seconds.
class HistoryFile {
 public:
  static constexpr double kEverySeconds = 10;
  static constexpr std::size_t kMostLines = 20000,
                               kNewestLines = 5000;  // two days; then half a day stays as it is
  /// Opens or begins the file, and gives `history` what is in it. Lines that are none are passed over. A file
  /// with more lines than kMostLines is first written anew, of its older part only each fourth look and every
  /// change.
  static Result<std::unique_ptr<HistoryFile>> open(const std::string& path, WatchHistory* history);
  /// Each ten seconds, and whenever state, phase or level changed.
  Status add(const HistoryMoment& moment);

 private:
  explicit HistoryFile(LineAppender file) : file_(std::move(file)) {}
  LineAppender file_;
  std::string words_;
  double written_ = -1e18;
};

/// One line and back; nullopt for anything that is none.
std::string history_line(const HistoryMoment& moment);
std::optional<HistoryMoment> history_moment(std::string_view line);

}  // namespace eaglet::apps
