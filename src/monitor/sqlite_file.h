#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace eaglet::monitor {

/// An SQLite file of another program, read only. SQLite's own library is loaded when it is needed
/// (libsqlite3.so.0, which any Linux with Python has; EAGLET_SQLITE names another one): so neither start-up
/// nor the program that is sent to other machines depends on it.
class SqliteFile {
 public:
  /// kUnavailable: no library. kDataLoss, kUnavailable: SQLite's word on the file. Nothing is written, also
  /// not beside it: a file without a writer's log ("-wal") is read as one that nobody changes, one with a log
  /// as SQLite's readers do.
  static Result<SqliteFile> open(const std::string& path);

  using Row = std::vector<std::string_view>;  // cells as text, "" for NULL; valid during the call
  /// One SELECT; `values` take the place of ?1, ?2, ... It is broken off when it takes too long (a second or
  /// so), with kDataLoss: what it found until then was handed on.
  Status select(const std::string& sql, const std::vector<std::string>& values,
                const std::function<void(const Row&)>& on_row) const;

 private:
  struct Closer {
    void operator()(void* database) const;
  };
  explicit SqliteFile(void* database) : database_(database) {}
  std::unique_ptr<void, Closer> database_;
};

}  // namespace eaglet::monitor
