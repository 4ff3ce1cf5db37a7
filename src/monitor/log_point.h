#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace eaglet::monitor {

/// What one record or one bar state says.
struct LogPoint {
  std::optional<std::int64_t> step, total;
  std::optional<double> epoch;
  bool from_bar = false, server = false;
  double seconds_per_step = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::pair<std::string, double>> metrics;  // canonical names

  /// Takes one printed pair; step and epoch go to their places. False when it is no metric we know.
  bool take(std::string_view printed_name, double value);
  bool has(std::string_view name) const;
};

/// A progress bar found anywhere in a segment.
struct BarLine {
  std::string_view description, rest;  // before it; after its closing bracket
  std::optional<double> done, total, percent;
  double seconds_per_unit = std::numeric_limits<double>::quiet_NaN();
  std::string_view post;  // "loss=11.02, acc=0.000"
};
/// tqdm's forms with and without a total, Lightning's, rich's at an epoch's end. nullopt unless it is whole,
/// up to the closing bracket.
std::optional<BarLine> find_bar(std::string_view segment);
/// What kind of work a bar counts, by its description: training, validation, or loading and the like.
enum class BarKind { kTrain, kValidate, kLoad };
BarKind bar_kind(std::string_view description);
LogPoint point_of(const BarLine& bar);

/// The record in a line, or nullopt: Python dicts and JSON objects, "name=value" lists, lines that begin with
/// "step 41/18865". The line is without controls, prefixes and bars.
std::optional<LogPoint> find_record(std::string_view line);
/// JSON of our own log.jsonl and its like; `event` and `message` come back for the caller.
std::optional<LogPoint> json_record(std::string_view line, std::string* event, std::string* message,
                                    double* time);
/// "Avg generation throughput: 2310.7 tokens/s, Running: 32 reqs, ..." of a server's log.
std::optional<LogPoint> server_record(std::string_view line);

}  // namespace eaglet::monitor
