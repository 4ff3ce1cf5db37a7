#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// One line of log.jsonl (docs/formats/runlog.md). A field that an event does not have keeps its default; NaN
/// is written as null. Arrays are by depth (drafting step 0 first).
struct LogRecord {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  double t = kNone;       // seconds since 1970
  std::string event;      // start | resume | step | validation | checkpoint | warning | end
  std::int64_t step = 0;  // from 0; for start and resume: the first step that follows
  std::int64_t epoch = 0;
  std::vector<double> loss, full_acc, cond_acc;
  double total_loss = kNone;         // sum over depths of decay^k * loss_k: what is minimised
  double outside_share = kNone;      // counted rows whose target token is not in the draft vocabulary, 0..1
  double supervised_tokens = kNone;  // of the step: rows whose loss counts at depth 0
  double acceptance_length = kNone;  // 1 + sum of full_acc, every supervised row
  double lr = kNone, grad_norm = kNone;
  double tokens_per_second = kNone;  // real tokens (no padding)
  double tokens_total = kNone;       // real tokens since step 0, through all restarts
  double step_seconds = kNone, data_wait_seconds = kNone;
  double fill_ratio = kNone, mfu_ratio = kNone;  // 0..1
  /// Of a device, by kind of op ("products", "attention", ...); empty where it was not measured in this step.
  std::vector<std::pair<std::string, double>> device_seconds;
  std::string message;  // a path or a sentence, for the rarer events
};

/// The record as one JSON line without newline.
std::string log_line(const LogRecord& record);
/// kDataLoss when it is not a JSON object with `event` and `t`; unknown fields are ignored (newer writers).
Result<LogRecord> parse_log_line(std::string_view line);

struct LogFile {
  std::vector<LogRecord> records;
  std::uint64_t broken_lines = 0;
  bool half_last_line = false;  // its writer was killed, or is writing right now
};

/// All records of a log.jsonl in file order. Broken lines are counted and passed over. kNotFound, or as
/// read_file.
Result<LogFile> read_log(const std::string& path);

/// What holds after restarts: a `start` or `resume` at step s cancels the step, validation and checkpoint
/// records with a step >= s before it (they were done again from an older checkpoint).
std::vector<LogRecord> effective_records(const std::vector<LogRecord>& records);

}  // namespace eaglet
