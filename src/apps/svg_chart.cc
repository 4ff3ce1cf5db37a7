#include "apps/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace eaglet::apps {
namespace {

constexpr double kWidth = 560, kHeight = 260, kLeft = 56, kRight = 12, kTop = 30, kBottom = 40;
constexpr std::size_t kMostPoints = 2000;  // a reader may zoom in

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  void widen_if_flat() {
    if (high - low > 0) return;
    const double room = high == 0 ? 1 : std::abs(high) * 0.1;
    low -= room;
    high += room;
  }
};

/// 1, 2 or 5 times a power of ten, so that about `count` of them span the range.
double tick_step(const Range& range, int count) {
  const double raw = (range.high - range.low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string tick_text(double value, double step) {
  if (std::abs(value) < step * 1e-6) return "0";
  if (std::abs(value) >= 1e5 || std::abs(value) < 1e-3) return fmt::format("{:.3g}", value);
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fmt::format("{:.{}f}", value, digits);
}

std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  if (points.size() <= kMostPoints) return points;
  std::vector<std::pair<double, double>> out;
  const std::size_t bucket = (2 * points.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t begin = 0; begin < points.size(); begin += bucket) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>(std::min(points.size(), begin + bucket));
    const auto [low, high] =
        std::minmax_element(first, last, [](auto& a, auto& b) { return a.second < b.second; });
    out.push_back(std::min(*low, *high));  // by x
    if (low != high) out.push_back(std::max(*low, *high));
  }
  return out;
}

double place_x(double value, const Range& x) {
  return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
}
double place_y(double value, const Range& y) {
  return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
}

std::string curve(const Series& series, std::size_t color, const Range& x, const Range& y) {
  const auto px = [&](double value) { return place_x(value, x); };
  const auto py = [&](double value) { return place_y(value, y); };
  std::string out;
  if (series.dots) {
    for (const auto& [at, value] : series.points)
      if (std::isfinite(value))
        out += fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>", color, px(at),
                           py(value));
    return out;
  }
  std::string path;
  bool pen_down = false;
  for (const auto& [at, value] : thinned(series.points)) {
    if (!std::isfinite(value)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.2f} {:.2f} ", pen_down ? "L" : "M", px(at), py(value));
    pen_down = true;
  }
  return fmt::format("<path class=\"c{}{}\" d=\"{}\"/>", color, series.faint ? " faint" : "", path);
}

/// Where ticks stand. Counted, not added up: between values so large that a step is less than their last
/// digit, adding would never come to an end.
std::vector<double> ticks(const Range& range, double step) {
  constexpr int kMostTicks = 20;
  std::vector<double> all;
  const double first = std::ceil(range.low / step) * step;
  for (int i = 0; i < kMostTicks; ++i) {
    const double value = first + i * step;
    if (!(value <= range.high + step * 1e-6)) break;
    all.push_back(value);
  }
  return all;
}

std::string axes(const std::string& x_label, const Range& x, const Range& y) {
  std::string out = "<g class=\"axes\">";
  const double y_step = tick_step(y, 5), x_step = std::max(1.0, tick_step(x, 6));
  for (const double value : ticks(y, y_step)) {
    const double at = place_y(value, y);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=\"tick\" x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        kLeft, kWidth - kRight, at, at, kLeft - 6, at + 4, tick_text(value, y_step));
  }
  for (const double value : ticks(x, x_step))
    out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       place_x(value, x), kHeight - kBottom + 16, tick_text(value, x_step));
  return out + fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text></g>",
                           kWidth - kRight, kHeight - 6, html_escape(x_label));
}

std::string mark_line(const Mark& mark, const Range& x) {
  if (!(mark.x >= x.low && mark.x <= x.high)) return {};
  const double at = place_x(mark.x, x);
  return fmt::format(
      "<line class=\"mark at {}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"><title>{}</title></line>",
      mark.level, at, at, kTop, kHeight - kBottom, html_escape(mark.text));
}

std::string height_line(const Height& height, const Range& y) {
  if (!(height.y >= y.low && height.y <= y.high)) return {};
  const double at = place_y(height.y, y);
  return fmt::format(
      "<line class=\"mark height\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=\"tick "
      "height\" x=\"{}\" "
      "y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
      kLeft, kWidth - kRight, at, at, kWidth - kRight - 4, at - 4, html_escape(height.text));
}

std::string band_strip(const Band& band, const Range& x) {
  constexpr double kThick = 5;
  const double from = std::max(band.from, x.low), to = std::min(band.to, x.high);
  if (!(to > from)) return {};
  return fmt::format(
      "<rect class=\"band {}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"><title>{}</title></rect>",
      band.style, place_x(from, x), kHeight - kBottom - kThick,
      std::max(0.5, place_x(to, x) - place_x(from, x)), kThick, html_escape(band.text));
}

/// "step 1240  loss_0 5.41  loss_1 5.78": each curve's newest value at or before x.
std::string values_at(double at, const std::string& x_label, const std::vector<Series>& series) {
  std::string text = fmt::format("{} {:.6g}", x_label, at);
  for (const Series& one : series) {
    if (one.faint || one.name.empty()) continue;
    auto after = std::upper_bound(one.points.begin(), one.points.end(), at,
                                  [](double wanted, const auto& point) { return wanted < point.first; });
    if (after == one.points.begin()) continue;
    text += fmt::format("  {} {:.4g}", one.name, std::prev(after)->second);
  }
  return text;
}

/// Columns that the pointer may rest on, each with what the curves say there.
std::string hits(const std::string& x_label, const std::vector<Series>& series, const Range& x) {
  constexpr std::size_t kMostColumns = 90;
  const auto longest = std::max_element(series.begin(), series.end(), [](const Series& a, const Series& b) {
    return a.points.size() < b.points.size();
  });
  const auto& points = longest->points;
  const std::size_t stride = points.size() / kMostColumns + 1;
  std::string out;
  double from = kLeft;
  for (std::size_t i = 0; i < points.size(); i += stride) {
    const bool last = i + stride >= points.size();
    const double here = place_x(points[i].first, x);
    const double to = last ? kWidth - kRight : (here + place_x(points[i + stride].first, x)) / 2;
    out += fmt::format(
        "<g class=\"hit\"><rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" "
        "fill-opacity=\"0\"/><line "
        "class=\"tip\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\" visibility=\"hidden\"/><text "
        "class=\"tip\" "
        "x=\"{}\" y=\"{}\" text-anchor=\"end\" visibility=\"hidden\">{}</text></g>",
        from, kTop, std::max(0.5, to - from), kHeight - kTop - kBottom, here, here, kTop, kHeight - kBottom,
        kWidth - kRight, kTop - 3, html_escape(values_at(points[i].first, x_label, series)));
    from = to;
  }
  return out;
}

std::size_t color_of(const std::vector<Series>& series, std::size_t i) {
  return (series[i].color >= 0 ? static_cast<std::size_t>(series[i].color) : i) % kChartColors;
}

struct Legend {
  std::string svg;
  double height = 0;  // below the usual one row
};

/// In as many rows as the names need; the first one leaves room for the name of the x axis.
Legend legend_of(const std::vector<Series>& series, const std::string& x_label) {
  constexpr double kRow = 16, kLetter = 6.5, kKey = 26;
  Legend legend;
  double at = kLeft, right = kWidth - kRight - kLetter * static_cast<double>(x_label.size());
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].faint) continue;
    const double width = kKey + kLetter * static_cast<double>(series[i].name.size());
    if (at > kLeft && at + width > right) {
      at = kLeft;
      right = kWidth - kRight;
      legend.height += kRow;
    }
    legend.svg += fmt::format(
        "<rect class=\"c{}\" x=\"{:.0f}\" y=\"{}\" width=\"10\" height=\"10\"/><text class=\"tick\" "
        "x=\"{:.0f}\" y=\"{}\">{}</text>",
        color_of(series, i), at, kHeight - 16 + legend.height, at + 14, kHeight - 7 + legend.height,
        html_escape(series[i].name));
    at += width;
  }
  return legend;
}

/// What a script must know to draw it again (watch_page_script.cc).
std::string frame_facts(const std::string& x_label, const Range& x, const Range& y) {
  const char* unit = x_label == "step" ? "step" : "minutes";
  return fmt::format(
      " data-box=\"{} {} {} {}\" data-x=\"{} {}\" data-y=\"{} {}\" data-unit=\"{}\" data-label=\"{}\"", kLeft,
      kWidth - kRight, kTop, kHeight - kBottom, x.low, x.high, y.low, y.high, unit, html_escape(x_label));
}

std::string open_svg(const std::string& title, double height, const std::string& facts = {}) {
  return fmt::format(
      "<svg role=\"img\"{} viewBox=\"0 0 {} {}\" aria-label=\"{}\"><text class=\"title\" x=\"8\" "
      "y=\"18\">{}</text>",
      facts, kWidth, height, html_escape(title), html_escape(title));
}

}  // namespace

std::string html_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string line_chart(const std::string& title, const std::string& x_label,
                       const std::vector<Series>& series, bool from_zero, const Overlay& overlay) {
  Range x, y;
  for (const Series& one : series)
    for (const auto& [at, value] : one.points)
      if (std::isfinite(value)) {
        x.add(at);
        y.add(value);
      }
  if (y.empty()) return open_svg(title, 60) + "<text class=\"tick\" x=\"8\" y=\"44\">no data</text></svg>";
  if (from_zero) y.add(0);
  x.widen_if_flat();
  y.widen_if_flat();
  const double room = 0.05 * (y.high - y.low);
  y.high += room;
  if (!from_zero) y.low -= room;
  const Legend legend = legend_of(series, x_label);
  std::string out =
      open_svg(title, kHeight + legend.height, overlay.values ? frame_facts(x_label, x, y) : "") +
      axes(x_label, x, y);
  if (overlay.values) out += hits(x_label, series, x);  // lowest: lines and strips have words of their own
  out += "<g class=\"plot\">";
  for (const Mark& mark : overlay.marks) out += mark_line(mark, x);
  for (const Height& height : overlay.heights) out += height_line(height, y);
  for (const Band& band : overlay.bands) out += band_strip(band, x);
  for (std::size_t i = 0; i < series.size(); ++i) out += curve(series[i], color_of(series, i), x, y);
  return out + "</g>" + legend.svg + "</svg>";
}

std::string plot_area() {
  return fmt::format(
      "<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"hidden\"><clipPath id=\"plot-area\"><rect "
      "x=\"{}\" y=\"{}\" "
      "width=\"{}\" height=\"{}\"/></clipPath></svg>",
      kLeft, kTop - 2, kWidth - kLeft - kRight, kHeight - kTop - kBottom + 2);
}

Series smoothed(const Series& raw, double share) {
  // There and back: a mean that only looks back lies above every falling curve.
  const auto pass = [&](auto begin, auto end) {
    double mean = std::numeric_limits<double>::quiet_NaN();
    for (auto point = begin; point != end; ++point) {
      if (!std::isfinite(point->second)) continue;
      mean = std::isnan(mean) ? point->second : mean + share * (point->second - mean);
      point->second = mean;
    }
  };
  Series smooth = raw, back = raw;
  pass(smooth.points.begin(), smooth.points.end());
  pass(back.points.rbegin(), back.points.rend());
  for (std::size_t i = 0; i < raw.points.size(); ++i)
    if (std::isfinite(raw.points[i].second))
      smooth.points[i].second = (smooth.points[i].second + back.points[i].second) / 2;
  return smooth;
}

std::string bar_chart(const std::string& title, const std::vector<Bar>& bars) {
  constexpr double kLabel = 190, kText = 110, kLine = 24;
  double most = 0;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  std::string out = open_svg(title, kTop + kLine * static_cast<double>(bars.size()) + 6);
  double at = kTop;
  for (const Bar& bar : bars) {
    const double width = most > 0 ? bar.value / most * (kWidth - kLabel - kText) : 0;
    out += fmt::format(
        "<text class=\"label\" x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text><rect class=\"c{}\" "
        "x=\"{}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"15\"/><text class=\"label\" x=\"{:.1f}\" "
        "y=\"{:.0f}\">{}</text>",
        kLabel - 8, at + 13, html_escape(bar.label), bar.color, kLabel, at + 1, std::max(width, 1.0),
        kLabel + width + 8, at + 13, html_escape(bar.text));
    at += kLine;
  }
  return out + "</svg>";
}

}  // namespace eaglet::apps
