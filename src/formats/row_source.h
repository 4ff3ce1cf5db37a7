#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace eaglet {

/// One row of a file, as text.
struct RowText {
  std::string text;
  std::uint64_t number = 0;  // of the line, or of the element when the file is one JSON list; from 1
  bool unfinished = false;   // the file ended inside the row (a line without newline may still be whole)
  bool blank() const { return text.find_first_not_of(" \t\r\n") == std::string::npos; }
};

/// Rows of a file one after another, whatever it is packed in: JSON lines, or one JSON list of rows; plain,
/// gzip (all members) or zstd (all frames); or a saved dataset of token rows (arrow_rows.h). Holds one row
/// and a buffer, never the file. Only '\n' ends a line (U+2028 and friends are text). Not thread-safe.
class RowSource {
 public:
  /// kNotFound, kPermission, kDataLoss (a packed file whose first bytes are broken).
  static Result<std::unique_ptr<RowSource>> open(const std::string& path);
  virtual ~RowSource() = default;
  /// False at the end. kDataLoss: a packed file that is cut or damaged, a row longer than 64 MiB.
  virtual Result<bool> next(RowText* row) = 0;
  /// "line" or "row": what RowText::number counts.
  virtual const char* unit() const = 0;
};

}  // namespace eaglet
