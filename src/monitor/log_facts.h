#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace eaglet::monitor {

/// One number of one record. Records without a step number have step -1 and count by `record`.
struct MetricSample {
  std::int64_t step = -1;
  std::int64_t record = 0;  // 1 is the first record of the log
  double value = 0;
  bool from_bar = false;  // a progress bar shows fewer digits than a record: at one step the record wins
};

/// A value that is not finite, where it was first seen.
struct BadValue {
  std::string metric;
  std::int64_t record = 0, step = -1;
  double value = 0;
};

struct LogError {
  std::string kind;  // out_of_memory, collective_timeout, signal, exception, bus_error, segfault, killed,
                     // device_error, disk_full, port_taken, child_exit
  std::string text, rank;
  std::int64_t line = 0;
  bool consequence = false;  // a launcher telling that somebody else failed
};

/// What a program says it is doing, as far as its log tells.
enum class LogPhase { kUnknown, kLoad, kCompile, kTrain, kValidate, kSave, kFinished };

/// All that a log of any trainer told (docs/watch.md lists the formats). Bounded: long series are thinned, of
/// the lines only the last ones are kept.
struct LogFacts {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::uint64_t bytes = 0, lines = 0, recognised = 0;
  std::int64_t records = 0;  // training records (bars are not counted)
  std::int64_t bars = 0;     // states of a training bar

  std::int64_t first_step = -1, last_step = -1, total_steps = 0;
  double epoch = kNone;
  double seconds_per_step = kNone;               // as a bar says it
  double first_time = kNone, last_time = kNone;  // as printed; seconds since 1970, or of an unknown day
  std::deque<std::pair<std::int64_t, double>> step_times;  // (step, printed time) of the last records

  /// Canonical names: loss, loss_0.., full_acc_0.., acc_0.., acc, lr, grad_norm, tokens_per_second,
  /// step_seconds, printed_seconds (when the record was made), data_wait_share, fill_ratio, mfu_ratio,
  /// acceptance_length, val_loss, server_....
  std::map<std::string, std::vector<MetricSample>> metrics;
  std::optional<BadValue> first_bad;

  std::optional<std::int64_t> train_batches, val_batches, total_training_steps;
  std::optional<std::int64_t> trainable_params, total_params, tensors_loaded, tensors_skipped;
  std::vector<std::string> hosts;               // machines whose processes wrote it, the first 64
  std::map<std::string, std::string> settings;  // what the log echoes: max_seq_len, ttt_steps, lr, ...
  std::vector<std::string> checkpoints;         // paths it says it saved, the last 64

  LogPhase phase = LogPhase::kUnknown;
  std::uint64_t phase_line = 0;            // when the phase was last named
  double last_validation_seconds = kNone;  // until something else was printed; by printed times
  bool finished = false, interrupted = false, resumed = false, bar_seen = false;
  std::string finished_line;
  std::vector<LogError> errors;  // since the last training record; the first 50
  bool info_seen = false, warning_seen = false;
  std::deque<std::string> last_lines;  // cleaned, the last 20

  /// The samples of a metric, or none.
  const std::vector<MetricSample>& series(const std::string& name) const;
  /// Losses by depth when there are such, else {"loss"} when there is one, else nothing.
  std::vector<std::string> loss_names() const;
  /// "loss_0" or "loss" or "": the loss that is comparable with ln(vocabulary).
  std::string first_loss_name() const;
  /// Median seconds between steps, from printed times or from the bar; NaN when not known.
  double step_interval() const;
  /// The earliest error that is not the echo of another one.
  const LogError* cause() const;
};

}  // namespace eaglet::monitor
