#pragma once

#include <string>
#include <utility>
#include <vector>

namespace eaglet::apps {

/// Colours that the style sheets have, classes c0, c1, ...: further curves take them again.
inline constexpr std::size_t kChartColors = 10;

/// One curve or one colour of bars.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; a y that is not finite leaves a gap
  bool dots = false;                              // single measurements instead of a line
  int color = -1;                                 // of these classes; -1: by its place among the curves
  bool faint = false;                             // raw values behind a smoothed curve; not in the legend
};

/// An SVG element with axes, ticks and a legend. Long curves are thinned to the least and greatest of each
/// bucket, so that spikes survive. `from_zero`: the y axis begins at 0.
/// What else a chart shows is drawn behind the curves; what lies outside of their range, not at all.
struct Mark {  // a dashed line up and down
  double x = 0;
  std::string text;   // shown when the pointer rests on it
  const char* level;  // class of its colour: "ok", "warn", "crit", "unknown"
};
struct Height {  // a dashed line from left to right, with its name
  double y = 0;
  std::string text;
};
struct Band {  // a strip along the x axis
  double from = 0, to = 0;
  std::string text;   // shown when the pointer rests on it
  const char* style;  // its class
};
struct Overlay {
  std::vector<Mark> marks = {};
  std::vector<Height> heights = {};
  std::vector<Band> bands = {};
  bool values = false;  // under the pointer, without a script: classes "hit" and "tip" of the style sheet
};
std::string line_chart(const std::string& title, const std::string& x_label,
                       const std::vector<Series>& series, bool from_zero, const Overlay& overlay = {});
/// Once in a page whose charts a script may draw again: what of a curve is not to leave.
std::string plot_area();
/// The same points as a running mean, each new one counting for `share`; a value that is not finite stays a
/// gap.
Series smoothed(const Series& raw, double share);

struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // the value as people read it
  int color = 0;
};
/// Horizontal bars, one a line.
std::string bar_chart(const std::string& title, const std::vector<Bar>& bars);

std::string html_escape(const std::string& text);

}  // namespace eaglet::apps
