#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// Status for a failed system call: kind from errno, what = "cannot <verb>: <reason>", where = path.
Status errno_status(const std::string& verb, const std::string& path, int error_number);

bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
Result<std::uint64_t> file_bytes(const std::string& path);
Result<std::string> read_file(const std::string& path);
/// Names (not paths) in a directory, sorted; without "." and "..".
Result<std::vector<std::string>> list_directory(const std::string& path);
/// Makes the directory and its parents; fine when it is there already.
Status make_directories(const std::string& path);
/// Free bytes a user may still write on the file system that holds `path` (or its nearest existing parent).
Result<std::uint64_t> free_disk_bytes(const std::string& path);
/// Removes a file or a whole folder; fine when it is gone already.
Status remove_all(const std::string& path);
/// fsync of a directory, so that a rename in it survives a power cut.
Status sync_directory(const std::string& path);
/// rename(2) and fsync of the parent directory.
Status rename_synced(const std::string& from, const std::string& to);
/// Makes `link` a symbolic link to `target` by temporary name and rename.
Status replace_link(const std::string& target, const std::string& link);

/// A file that appears under its name only when commit() succeeded: written to "<path>.tmp", synced, renamed.
/// Without commit() the destructor removes the temporary file. One writer; not thread-safe.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();
  Status write(const void* data, std::size_t bytes);
  Status write(std::string_view text) { return write(text.data(), text.size()); }
  std::uint64_t bytes_written() const { return bytes_written_; }
  Status commit();

 private:
  AtomicFile(int fd, std::string path);
  int fd_ = -1;
  std::string path_, temporary_;
  std::uint64_t bytes_written_ = 0;
};

Status write_file_atomic(const std::string& path, std::string_view content);
/// The same unless the file is there: of several processes that do it at once, one's content stays.
Status write_file_once(const std::string& path, std::string_view content);

/// Appends whole lines: each append() is one write(2), so a reader never sees half a line from a living
/// writer. open() cuts a half line that a kill left at the end and says how many bytes it cut.
class LineAppender {
 public:
  static Result<LineAppender> open(const std::string& path);
  LineAppender(LineAppender&& other) noexcept;
  LineAppender& operator=(LineAppender&&) = delete;
  ~LineAppender();
  /// `line` without its newline. The line is in the kernel when this returns (it survives kill -9).
  Status append(std::string_view line);
  Status sync();
  std::uint64_t cut_bytes() const { return cut_bytes_; }

 private:
  LineAppender(int fd, std::string path, std::uint64_t cut_bytes);
  int fd_ = -1;
  std::string path_;
  std::uint64_t cut_bytes_ = 0;
};

/// Read-only view of a whole file; the bytes live as long as the object. An empty file has data() == nullptr.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  const std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  /// These bytes are not needed soon: they no longer count as this process's memory. Reading them again is
  /// fine.
  void release(std::uint64_t offset, std::uint64_t bytes) const;
  /// These bytes are read soon, all of them: the disk may begin.
  void expect(std::uint64_t offset, std::uint64_t bytes) const;
  /// The file is read here and there: a page that is touched brings no others along.
  void expect_scattered() const;

 private:
  MappedFile(std::string path, const std::byte* data, std::uint64_t bytes);
  std::string path_;
  const std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Holds an exclusive lock on `<directory>/.lock` while it lives; kBusy names the process that has it.
/// The kernel frees the lock when the process dies, so there is nothing stale to clean.
class DirectoryLock {
 public:
  static Result<DirectoryLock> take(const std::string& directory);
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace eaglet
