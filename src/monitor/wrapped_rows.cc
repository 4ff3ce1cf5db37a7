#include "monitor/wrapped_rows.h"

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

// "[09:15:53] " and "INFO     ": ten columns of time, a blank, eight of level, a blank.
constexpr std::size_t kMessageColumn = 20, kLevelColumn = 11;
constexpr std::size_t kLongestRecord = 64 * 1024;

bool is_clock(std::string_view row) {
  constexpr std::string_view kShape = "[dd:dd:dd] ";
  if (row.size() < kShape.size()) return false;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const bool fits = kShape[i] == 'd' ? row[i] >= '0' && row[i] <= '9' : row[i] == kShape[i];
    if (!fits) return false;
  }
  return true;
}

bool all_blank(std::string_view text) {
  return text.find_first_not_of(' ') == std::string_view::npos;
}

std::string_view level_at(std::string_view row) {
  if (row.size() < kMessageColumn) return {};
  const std::string_view level = trim(row.substr(kLevelColumn, kMessageColumn - kLevelColumn - 1));
  for (const char* known : {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})
    if (level == known) return level;
  return {};
}

/// Where "trainer.py:437" begins at the end of a row, or npos.
std::size_t path_column(std::string_view row) {
  const std::size_t start = row.find_last_of(' ');
  if (start == std::string_view::npos || start < kMessageColumn) return std::string_view::npos;
  const std::string_view path = row.substr(start + 1);
  const std::size_t colon = path.rfind(':');
  const bool source = colon != std::string_view::npos && colon > 0 && path.find(".py:") != path.npos &&
                      whole_number(path.substr(colon + 1));
  return source ? start + 1 : std::string_view::npos;
}

std::string_view without_end_blanks(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool WrappedRows::take(std::string_view row, std::optional<Record>* done) {
  const std::string_view full = row;
  row = without_end_blanks(row);
  const bool clock = is_clock(row),
             blank_clock = !clock && full.size() > kMessageColumn && all_blank(full.substr(0, kLevelColumn));
  const std::string_view level = clock || blank_clock ? level_at(row) : std::string_view();
  if (!level.empty()) {
    *done = finish();
    record_.emplace();
    record_->level = level;
    if (clock) record_->clock = row.substr(1, 8);
    const std::size_t path = path_column(row);
    width_ = path == std::string_view::npos ? 0 : columns(row.substr(0, path)) - kMessageColumn - 1;
    std::string_view message = row.substr(kMessageColumn);
    if (path != std::string_view::npos)
      message = without_end_blanks(row.substr(kMessageColumn, path - kMessageColumn));
    last_row_ = columns(message);
    record_->text = message;
    return true;
  }
  if (!record_ || row.size() <= kMessageColumn || !all_blank(row.substr(0, kMessageColumn))) return false;
  const std::string_view message = row.substr(kMessageColumn);
  // A row that filled the width was cut inside a word, or ended with one exactly: then a comma is the sign.
  const bool cut =
      width_ != 0 && last_row_ == width_ && !record_->text.empty() && record_->text.back() != ',';
  if (record_->text.size() + message.size() < kLongestRecord) {
    if (!cut && !record_->text.empty()) record_->text += ' ';
    record_->text += message;
  }
  last_row_ = columns(message);
  return true;
}

std::optional<WrappedRows::Record> WrappedRows::finish() {
  std::optional<Record> done = std::move(record_);
  record_.reset();
  return done;
}

}  // namespace eaglet::monitor
