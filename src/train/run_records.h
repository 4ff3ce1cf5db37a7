#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "runlog/event_file.h"
#include "runlog/log_record.h"
#include "runlog/status_file.h"

namespace eaglet {

/// The three records of one run (docs/formats/runlog.md) and the line for people, written together.
class RunRecords {
 public:
  /// `on_line` may be empty. Opens (and mends the end of) log.jsonl, makes a new event file.
  static Result<RunRecords> open(const std::string& output_dir, const std::string& run_id,
                                 std::int64_t total_steps, std::function<void(const std::string&)> on_line);

  /// Keeps no records: for the ranks beside rank 0.
  static RunRecords none() { return RunRecords(); }

  /// One trained step: log line, TensorBoard scalars, line for people.
  Status step(const LogRecord& record);
  Status validation(const LogRecord& record);
  /// start, resume, checkpoint, warning, end.
  Status event(const std::string& event, std::int64_t step, std::int64_t epoch, const std::string& message);
  /// Refreshes status.json; promises the next update within `seconds`. 0: the run is over.
  Status status(const std::string& phase, double next_within_seconds);

  /// Facts of the last finished step, for status.json.
  void set_progress(std::int64_t step, double loss, double tokens_per_second);
  /// Of the last step that was measured, for status.json.
  void set_device_seconds(const std::vector<std::pair<std::string, double>>& seconds);

 private:
  struct Files {
    LineAppender log;
    EventWriter events;
    StatusFile status;
  };
  RunRecords() = default;
  std::unique_ptr<Files> files_;  // nullptr: no records
  RunStatus now_;
  std::function<void(const std::string&)> on_line_;
};

/// "step 41/141  epoch 0  loss 8.914 9.224 9.534  full_acc 0.061 ...".
std::string step_line(const LogRecord& record, std::int64_t total_steps);

}  // namespace eaglet
