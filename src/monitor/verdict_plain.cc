#include "monitor/verdict_plain.h"

#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"

namespace eaglet::monitor {
namespace {

std::string number_or_dash(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "-";
}

std::string newest(const LogFacts& log, const std::string& metric) {
  const auto& samples = log.series(metric);
  return samples.empty() ? "-" : fmt::format("{:.6g}", samples.back().value);
}

}  // namespace

std::string plain_row(std::initializer_list<std::string> columns) {
  std::string row;
  for (const std::string& column : columns) {
    if (&column != columns.begin()) row += '\t';
    for (const char c : column) row += static_cast<unsigned char>(c) < ' ' || c == 0x7f ? ' ' : c;
    if (column.empty()) row += '-';
  }
  return row + "\n";
}

std::string verdict_plain(const Verdict& v) {
  std::string rows;
  for (const Judgement& j : v.judgements)
    rows += plain_row({layer_word(j.layer), level_word(j.level), j.name, number_or_dash(j.value), j.unit,
                       j.reason, j.advice});
  return rows;
}

std::string moment_plain(const Verdict& v) {
  return plain_row({std::isnan(v.wall) ? "-" : rfc3339_utc(v.wall), state_word(v.state.state),
                    level_word(v.level), v.step < 0 ? "-" : std::to_string(v.step),
                    v.total_steps > 0 ? std::to_string(v.total_steps) : "-",
                    newest(v.log, v.log.first_loss_name()), newest(v.log, "tokens_per_second"),
                    number_or_dash(v.eta_seconds), v.headline});
}

}  // namespace eaglet::monitor
