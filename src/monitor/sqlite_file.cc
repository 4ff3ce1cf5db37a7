#include "monitor/sqlite_file.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "base/files.h"

namespace eaglet::monitor {
namespace {

// The parts of SQLite's interface that are used (stable since 3.0), so that no header is needed to build.
constexpr int kOk = 0, kRow = 100, kDone = 101;
constexpr int kOpenReadOnly = 0x1, kOpenUri = 0x40, kOpenNoMutex = 0x8000;
constexpr int kLimitLength = 0, kMostCellBytes = 16 << 20, kPatienceMs = 200;
constexpr int kStepsBetweenLooks = 100000, kMostLooks = 500;

struct Library {
  int (*open)(const char*, void**, int, const char*) = nullptr;
  int (*close)(void*) = nullptr;
  const char* (*message)(void*) = nullptr;
  int (*wait)(void*, int) = nullptr;
  int (*limit)(void*, int, int) = nullptr;
  void (*progress)(void*, int, int (*)(void*), void*) = nullptr;
  int (*prepare)(void*, const char*, int, void**, const char**) = nullptr;
  int (*bind)(void*, int, const char*, int, void (*)(void*)) = nullptr;
  int (*step)(void*) = nullptr;
  int (*count)(void*) = nullptr;
  const unsigned char* (*text)(void*, int) = nullptr;
  int (*bytes)(void*, int) = nullptr;
  int (*finalize)(void*) = nullptr;
  bool whole = false;
};

template <class Function>
bool find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(::dlsym(library, name));
  return *function != nullptr;
}

/// Loaded once, and kept as long as the program runs.
const Library& library() {
  static const Library loaded = [] {
    Library all;
    const char* named = std::getenv("EAGLET_SQLITE");
    void* handle = ::dlopen(named == nullptr ? "libsqlite3.so.0" : named, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return all;
    all.whole =
        find(handle, "sqlite3_open_v2", &all.open) && find(handle, "sqlite3_close", &all.close) &&
        find(handle, "sqlite3_errmsg", &all.message) && find(handle, "sqlite3_busy_timeout", &all.wait) &&
        find(handle, "sqlite3_limit", &all.limit) &&
        find(handle, "sqlite3_progress_handler", &all.progress) &&
        find(handle, "sqlite3_prepare_v2", &all.prepare) && find(handle, "sqlite3_bind_text", &all.bind) &&
        find(handle, "sqlite3_step", &all.step) && find(handle, "sqlite3_column_count", &all.count) &&
        find(handle, "sqlite3_column_text", &all.text) && find(handle, "sqlite3_column_bytes", &all.bytes) &&
        find(handle, "sqlite3_finalize", &all.finalize);
    return all;
  }();
  return loaded;
}

/// A path as a URI has it.
std::string escaped(const std::string& path) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 32 && byte < 127 && c != '%' && c != '?' && c != '#') {
      out += c;
    } else {
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

int count_down(void* left) {
  return --*static_cast<int*>(left) < 0 ? 1 : 0;
}

Status failure(void* database) {
  const char* message = library().message(database);
  return Status(StatusCode::kDataLoss, std::string("SQLite: ") + (message == nullptr ? "?" : message));
}

}  // namespace

void SqliteFile::Closer::operator()(void* database) const {
  (void)library().close(database);
}

Result<SqliteFile> SqliteFile::open(const std::string& path) {
  const Library& sqlite = library();
  if (!sqlite.whole)
    return Status(StatusCode::kUnavailable, "no SQLite library here", "libsqlite3.so.0",
                  "install libsqlite3-0 (sqlite-libs)");
  const bool has_writer = path_exists(path + "-wal") || path_exists(path + "-journal");
  const std::string uri = "file:" + escaped(path) + "?mode=ro" + (has_writer ? "" : "&immutable=1");
  void* database = nullptr;
  const int code = sqlite.open(uri.c_str(), &database, kOpenReadOnly | kOpenUri | kOpenNoMutex, nullptr);
  if (database == nullptr) return Status(StatusCode::kNoSpace, "SQLite got no memory", path);
  SqliteFile file(database);
  if (code != kOk) return failure(database).at(path);
  (void)sqlite.wait(database, kPatienceMs);
  (void)sqlite.limit(database, kLimitLength, kMostCellBytes);
  return file;
}

Status SqliteFile::select(const std::string& sql, const std::vector<std::string>& values,
                          const std::function<void(const Row&)>& on_row) const {
  const Library& sqlite = library();
  void* database = database_.get();
  void* raw = nullptr;
  if (sqlite.prepare(database, sql.c_str(), static_cast<int>(sql.size()), &raw, nullptr) != kOk)
    return failure(database);
  const std::unique_ptr<void, int (*)(void*)> statement(raw, sqlite.finalize);
  for (std::size_t i = 0; i < values.size(); ++i)  // they outlive the statement
    if (sqlite.bind(raw, static_cast<int>(i) + 1, values[i].c_str(), static_cast<int>(values[i].size()),
                    nullptr) != kOk)
      return failure(database);
  int looks_left = kMostLooks;
  sqlite.progress(database, kStepsBetweenLooks, &count_down, &looks_left);
  int code = kDone;
  while ((code = sqlite.step(raw)) == kRow) {
    Row row;
    for (int i = 0; i < sqlite.count(raw); ++i) {
      const auto* text = reinterpret_cast<const char*>(sqlite.text(raw, i));
      row.emplace_back(text == nullptr ? "" : text,
                       text == nullptr ? 0 : static_cast<std::size_t>(sqlite.bytes(raw, i)));
    }
    on_row(row);
  }
  sqlite.progress(database, 0, nullptr, nullptr);
  return code == kDone ? Status() : failure(database);
}

}  // namespace eaglet::monitor
