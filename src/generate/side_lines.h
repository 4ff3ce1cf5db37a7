#pragma once

#include <string>

#include "base/files.h"
#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// A side file that names what was left out, one JSON object a line. It appears when it is committed, and
/// only when it has a line; an older one goes away otherwise.
class SideLines {
 public:
  explicit SideLines(std::string path) : path_(std::move(path)) {}
  void add(const Json& line) {
    text_ += json_line(line) + "\n";
    ++lines_;
  }
  std::int64_t lines() const { return lines_; }
  const std::string& path() const { return path_; }
  Status commit() const { return text_.empty() ? remove_all(path_) : write_file_atomic(path_, text_); }

 private:
  std::string path_, text_;
  std::int64_t lines_ = 0;
};

}  // namespace eaglet
