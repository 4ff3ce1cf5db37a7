#include "apps/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace eaglet::apps {
namespace {

constexpr double kWidth = 560, kHeight = 260, kLeft = 56, kRight = 12, kTop = 30, kBottom = 40;
constexpr std::size_t kMostPoints = 1000;

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

std::string curve(const Series& series, std::size_t color, const Range& x, const Range& y) {
  const auto px = [&](double value) {
    return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  };
  const auto py = [&](double value) {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  };
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
    path += fmt::format("{}{:.1f} {:.1f} ", pen_down ? "L" : "M", px(at), py(value));
    pen_down = true;
  }
  return fmt::format("<path class=\"c{}\" d=\"{}\"/>", color, path);
}

std::string axes(const std::string& x_label, const Range& x, const Range& y) {
  std::string out;
  const double y_step = tick_step(y, 5), x_step = std::max(1.0, tick_step(x, 6));
  for (double value = std::ceil(y.low / y_step) * y_step; value <= y.high + y_step * 1e-6; value += y_step) {
    const double at = kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=\"tick\" x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        kLeft, kWidth - kRight, at, at, kLeft - 6, at + 4, tick_text(value, y_step));
  }
  for (double value = std::ceil(x.low / x_step) * x_step; value <= x.high + x_step * 1e-6; value += x_step) {
    const double at = kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
    out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", at,
                       kHeight - kBottom + 16, tick_text(value, x_step));
  }
  return out + fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                           kWidth - kRight, kHeight - 6, html_escape(x_label));
}

std::string mark_line(const Mark& mark, const Range& x) {
  if (!(mark.x >= x.low && mark.x <= x.high)) return {};
  const double at = kLeft + (mark.x - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  return fmt::format(
      "<line class=\"mark {}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"><title>{}</title></line>",
      mark.level, at, at, kTop, kHeight - kBottom, html_escape(mark.text));
}

std::string legend(const std::vector<Series>& series) {
  std::string out;
  double at = kLeft;
  for (std::size_t i = 0; i < series.size(); ++i) {
    out += fmt::format(
        "<rect class=\"c{}\" x=\"{:.0f}\" y=\"{}\" width=\"10\" height=\"10\"/><text class=\"tick\" "
        "x=\"{:.0f}\" y=\"{}\">{}</text>",
        i, at, kHeight - 16, at + 14, kHeight - 7, html_escape(series[i].name));
    at += 26 + 6.5 * static_cast<double>(series[i].name.size());
  }
  return out;
}

std::string open_svg(const std::string& title, double height) {
  return fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {} {}\" aria-label=\"{}\"><text class=\"title\" x=\"8\" "
      "y=\"18\">{}</text>",
      kWidth, height, html_escape(title), html_escape(title));
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
                       const std::vector<Series>& series, bool from_zero, const std::vector<Mark>& marks) {
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
  std::string out = open_svg(title, kHeight) + axes(x_label, x, y);
  for (const Mark& mark : marks) out += mark_line(mark, x);
  for (std::size_t i = 0; i < series.size(); ++i) out += curve(series[i], i, x, y);
  return out + legend(series) + "</svg>";
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
