#pragma once

#include <string>
#include <utility>
#include <vector>

namespace eaglet::apps {

/// One curve or one colour of bars. Colours come from the page's style sheet (classes c0, c1, ...).
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; a y that is not finite leaves a gap
  bool dots = false;                              // single measurements instead of a line
};

/// An SVG element with axes, ticks and a legend. Long curves are thinned to the least and greatest of each
/// bucket, so that spikes survive. `from_zero`: the y axis begins at 0.
/// `marks` are drawn behind the curves as dashed lines, those outside of the curves' range not at all.
struct Mark {
  double x = 0;
  std::string text;   // shown when the pointer rests on it
  const char* level;  // class of its colour: "ok", "warn", "crit", "unknown"
};
std::string line_chart(const std::string& title, const std::string& x_label,
                       const std::vector<Series>& series, bool from_zero,
                       const std::vector<Mark>& marks = {});

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
