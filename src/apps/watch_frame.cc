#include "apps/watch_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/console.h"
#include "apps/device_time_text.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "monitor/series_stats.h"
#include "monitor/text_scan.h"

namespace eaglet::apps {
namespace {

using monitor::kLayers;
using monitor::Layer;
using monitor::Level;
using monitor::Verdict;

/// Only bytes of ASCII; what is beyond becomes '?', once for each character.
std::string ascii_only(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      out += c;
    else if ((byte & 0xc0) == 0xc0)
      out += '?';
  }
  return out;
}

Tone tone_of(Level level) {
  constexpr Tone tones[] = {Tone::kGood, Tone::kWarn, Tone::kBad, Tone::kDim};
  return tones[static_cast<int>(level)];
}

class Frame {
 public:
  Frame(const Verdict& verdict, const WatchHistory& history, const FrameStyle& style)
      : v_(verdict), history_(history), style_(style) {}

  std::vector<std::string> draw() {
    head();
    if (style_.help)
      help();
    else if (style_.page == FrameStyle::Page::kLog)
      log_page();
    else if (style_.page == FrameStyle::Page::kEvents)
      events_page();
    else if (style_.page == FrameStyle::Page::kDevices)
      devices_page();
    else
      overview();
    const auto rows = static_cast<std::size_t>(std::max(2, style_.rows));
    lines_.resize(rows - 1);
    // What the keys changed stands first, where no narrow screen cuts it off.
    add_dim(std::string(style_.paused ? "PAUSED  " : "") +
            (style_.zoom > 1 ? fmt::format("newest 1/{}  ", style_.zoom) : "") +
            "q quit  space pause  1 overview  2 log  3 events  4 GPUs and ranks  ? help");
    lines_.resize(rows);
    return std::move(lines_);
  }

 private:
  std::string cut(const std::string& text) const {
    const std::string clean = monitor::without_controls(text);
    return cut_to_columns(style_.ascii ? ascii_only(clean) : clean, style_.columns);
  }
  void add(const std::string& text) { lines_.push_back(cut(text)); }
  void add_dim(const std::string& text) { lines_.push_back(toned(cut(text), Tone::kDim, style_.color)); }
  /// The first word carries the colour.
  void add_marked(const std::string& word, Level level, const std::string& rest) {
    const std::string whole = cut(word + rest);
    const std::size_t length = std::min(word.size(), whole.size());
    lines_.push_back(toned(whole.substr(0, length), tone_of(level), style_.color) + whole.substr(length));
  }

  void head() {
    const Level level =
        monitor::state_level(v_.state.state) == Level::kOk ? v_.level : monitor::state_level(v_.state.state);
    add_marked(state_word(v_.state.state), level, "  " + v_.headline);
    if (const std::string& first = first_thing_to_do(v_); !first.empty()) add("  -> " + first);
    std::string facts = "run " + v_.name;
    if (!v_.activity.ranks.empty()) facts += fmt::format("  pid {}", v_.activity.ranks.front().pid);
    if (!std::isnan(v_.up_seconds)) facts += "  up " + human_duration(v_.up_seconds);
    facts += std::string("  ") + monitor::phase_word(v_.state.phase);
    if (v_.step >= 0)
      facts += v_.total_steps > 0
                   ? fmt::format("  step {}/{} {:.0f} %", v_.step, v_.total_steps,
                                 100.0 * static_cast<double>(v_.step) / static_cast<double>(v_.total_steps))
                   : fmt::format("  step {}", v_.step);
    if (!std::isnan(v_.eta_seconds)) facts += "  eta " + human_duration(v_.eta_seconds);
    if (!std::isnan(v_.state.silent_seconds))
      facts += fmt::format("  last progress {} ago", human_duration(v_.state.silent_seconds));
    add(facts);
  }

  void overview() {
    for (const Layer layer : kLayers) {
      const bool judged = monitor::layer_judged(v_, layer);
      const std::string word = judged ? level_word(layer_level(v_, layer)) : "-";
      add_marked(word, judged ? layer_level(v_, layer) : Level::kUnknown,
                 std::string(word.size() < 8 ? 8 - word.size() : 1, ' ') +
                     fmt::format("{:<9} ", layer_word(layer)) + layer_text(v_, layer));
    }
    if (!v_.state.silence.empty()) add("        " + v_.state.silence);
    if (const std::string device = device_time_text(v_); !device.empty()) add("device  " + device);
    add("");
    for (const std::string& name : v_.log.loss_names())
      curve(name, monitor::values_of(v_.log.series(name)), "{:.4g}");
    for (const char* name : {"full_acc_0", "acc", "acceptance_length", "lr", "tokens_per_second"})
      if (!v_.log.series(name).empty()) curve(name, monitor::values_of(v_.log.series(name)), "{:.4g}");
    history_curve("GPU busy %", &HistoryPoint::busy_pct);
    history_curve("GPU watts", &HistoryPoint::power_w);
    history_curve("CPU cores", &HistoryPoint::cores);
    add("");
    const auto rows = static_cast<std::size_t>(style_.rows);
    const std::size_t left = rows > lines_.size() + 2 ? rows - lines_.size() - 2 : 0;
    log_lines(left);
  }

  void history_curve(const char* name, double HistoryPoint::*field) {
    std::vector<double> values;
    bool known = false;
    for (const HistoryPoint& point : history_.points()) {
      values.push_back(point.*field);
      known = known || !std::isnan(point.*field);
    }
    if (known) curve(name, values, "{:.1f}");
  }

  void curve(const std::string& name, const std::vector<double>& values, const char* format) {
    if (values.empty()) return;
    const std::size_t part = values.size() / static_cast<std::size_t>(std::max(1, style_.zoom));
    const std::size_t shown = std::max(std::min<std::size_t>(values.size(), 8), part);
    const std::vector<double> newest(values.end() - static_cast<std::ptrdiff_t>(shown), values.end());
    const std::string label =
        fmt::format("{:<18} {:>9}  ", name.substr(0, 18),
                    std::isfinite(values.back()) ? fmt::format(fmt::runtime(format), values.back()) : "nan");
    add(label + spark_line(newest, style_.columns - static_cast<int>(label.size()), style_.ascii));
  }

  void log_lines(std::size_t most) {
    const auto& lines = v_.log.last_lines;
    for (std::size_t i = lines.size() > most ? lines.size() - most : 0; i < lines.size(); ++i)
      add_dim("| " + lines[i]);
  }

  void log_page() {
    add("log " + (v_.log_path.empty() ? "not found" : v_.log_path));
    log_lines(static_cast<std::size_t>(std::max(0, style_.rows - 6)));
  }

  void events_page() {
    add("events");
    for (auto it = history_.events().rbegin(); it != history_.events().rend(); ++it) {
      const std::string time = rfc3339_utc(it->wall).substr(11, 8);
      add_marked(time, it->level, "  " + it->text);
    }
  }

  static std::string known(const char* format, double value) {
    return std::isnan(value) ? "?" : fmt::format(fmt::runtime(format), value);
  }

  void devices_page() {
    for (const auto& d : v_.activity.devices)
      add(fmt::format("GPU {}  {:<12.12} busy {:>5} %  {:>5}/{} W  {:>5}/{} GiB{}", d.index, d.name,
                      known("{:.1f}", d.busy_pct), known("{:.0f}", d.power_w), known("{:.0f}", d.limit_w),
                      known("{:.1f}", d.used_bytes / (1 << 30)), known("{:.0f}", d.total_bytes / (1 << 30)),
                      std::isnan(d.tensor_pct) ? "" : fmt::format("  tensor {:.0f} %", d.tensor_pct)) +
          (d.foreign_busy_pct > 0 ? fmt::format("  of it pid {} {:.0f} %", d.foreign_pid, d.foreign_busy_pct)
                                  : ""));
    if (v_.activity.devices.empty()) add("no GPU");
    for (const auto& r : v_.activity.ranks)
      add(fmt::format("rank {:>3}  pid {:<8} {}  {:>5} cores  {}", r.rank < 0 ? "-" : std::to_string(r.rank),
                      r.pid, r.state, known("{:.2f}", r.cores), r.wait_place));
  }

  void help() {
    for (const char* line :
         {"Layers are judged from the bottom: process, hardware, configuration, learning.",
          "The first line names the first bad one and the next command to run.", "",
          "q        leave (the run is not touched)", "space    stop drawing, go on sampling",
          "1 2 3 4  overview, log, events, GPUs and ranks (also l, e, g)", "tab      next page",
          "+ -      curves of the newest half, quarter, ... or of all", "?        this page"})
      add(line);
  }

  const Verdict& v_;
  const WatchHistory& history_;
  const FrameStyle& style_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> watch_frame(const monitor::Verdict& verdict, const WatchHistory& history,
                                     const FrameStyle& style) {
  return Frame(verdict, history, style).draw();
}

std::string spark_line(const std::vector<double>& values, int columns, bool ascii) {
  if (columns <= 0) return {};
  const char* blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const char plain[] = {'_', '.', ':', '-', '=', '+', '*', '#'};
  double least = monitor::kNotKnown, most = monitor::kNotKnown;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::isnan(least) ? value : std::min(least, value);
    most = std::isnan(most) ? value : std::max(most, value);
  }
  const auto width = std::min<std::size_t>(values.size(), static_cast<std::size_t>(columns));
  std::string out;
  for (std::size_t column = 0; column < width; ++column) {
    // Of the values that share a column the newest is drawn.
    const double value = values[(column + 1) * values.size() / width - 1];
    if (!std::isfinite(value)) {
      out += ' ';
      continue;
    }
    const double share = most > least ? (value - least) / (most - least) : 0.5;
    const auto level = static_cast<std::size_t>(std::min(7.0, 8 * share));
    if (ascii)
      out += plain[level];
    else
      out += blocks[level];
  }
  return out;
}

}  // namespace eaglet::apps
