#pragma once

#include <string>
#include <string_view>

#include "monitor/log_facts.h"
#include "monitor/log_point.h"
#include "monitor/log_split.h"
#include "monitor/wrapped_rows.h"

namespace eaglet::monitor {

/// Reads the log of any trainer as it grows. What comes out depends on the bytes only, not on how they were
/// cut into calls. Memory is bounded whatever the file holds; nothing throws.
class LogReader {
 public:
  void feed(std::string_view bytes);
  /// A record that is no text: scalars of one step, as event files have them.
  void add_scalars(std::int64_t step, double time,
                   const std::vector<std::pair<std::string, double>>& scalars);
  /// All that is final, plus what the unfinished end shows when that is whole in itself: a bar up to its
  /// closing bracket, a JSON object, a wrapped record whose next row may still come. Half a record is never
  /// taken.
  LogFacts facts() const;

 private:
  void segment(std::string_view text);
  void finish_wrapped();
  void wrapped_record(const WrappedRows::Record& record);
  /// One logical line without controls; `level` and time may be known already.
  void line(std::string_view text, const std::string& level, double time, bool has_date);
  bool record_line(std::string_view text, double time, bool has_date);
  bool fact_line(std::string_view text);
  void note_error(std::string_view text, const std::string& rank);
  void add(const LogPoint& point, double time, bool has_date);
  void add_sample(const std::string& metric, const MetricSample& sample);
  void begin_again(std::int64_t step);
  void set_phase(LogPhase phase);
  void json_event(const std::string& event, const std::string& message, const LogPoint& point);
  void keep_last(std::string_view text);
  double continued(double time, bool has_date);

  LogSplitter splitter_;
  WrappedRows rows_;
  LogFacts facts_;
  bool restarted_ = false;  // the log said that a run begins again: smaller steps are not stragglers
  bool in_traceback_ = false;
  double line_time_ = LogFacts::kNone;  // of the line at hand, as printed
  double validation_began_ = LogFacts::kNone;
};

}  // namespace eaglet::monitor
