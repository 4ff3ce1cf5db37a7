#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace eaglet::monitor {

/// Puts records of Python's rich log handler together again: it breaks them into rows of a fixed width, with
/// the time only on the first row and the source position in a right-hand column.
///
///   [09:15:53] INFO     train/loss_0=10.520,                          trainer.py:437
///                       train/full_acc_0=4.00e-04, ...
class WrappedRows {
 public:
  struct Record {
    std::string text;   // the message on one line
    std::string level;  // INFO, WARNING, ...
    std::string clock;  // "09:15:53", or empty when the time was left out
  };
  /// True when the row belongs to such a record; *done gets the record that this row ended, if any.
  bool take(std::string_view row, std::optional<Record>* done);
  /// The record that is still open (more rows may follow), or nullopt; forgets it.
  std::optional<Record> finish();
  bool open() const { return record_.has_value(); }

 private:
  std::optional<Record> record_;
  std::size_t width_ = 0, last_row_ = 0;  // columns of the message part; of the last row's text
};

}  // namespace eaglet::monitor
