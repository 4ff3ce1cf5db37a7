#pragma once

#include <string>
#include <vector>

namespace eaglet::apps {

/// The alternate screen of a terminal: raw keys, hidden cursor, only changed rows are sent. Everything is put
/// back by the destructor, at exit and by the signals that end or suspend the program.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  int columns() const;
  int rows() const;
  void draw(const std::vector<std::string>& lines);
  /// A key that was pressed, waiting at most that long; 0 when none. Escape sequences come as 0.
  int key(double seconds);

 private:
  std::vector<std::string> shown_;
  int shown_columns_ = 0;
};

/// Whether the locale's text is UTF-8 (LC_ALL, LC_CTYPE, LANG).
bool locale_is_utf8();

}  // namespace eaglet::apps
