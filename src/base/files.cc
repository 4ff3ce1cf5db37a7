#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace eaglet {
namespace fs = std::filesystem;

Status errno_status(const std::string& verb, const std::string& path, int error_number) {
  StatusCode code = StatusCode::kUnavailable;
  std::string todo;
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      code = StatusCode::kNotFound;
      todo = "check the path";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = StatusCode::kPermission;
      todo = "choose a place you may use, or change its rights";
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = StatusCode::kNoSpace;
      todo =
          "free some space there (or choose another disk), then run the same command again: finished work is "
          "kept";
      break;
    case EISDIR:
      code = StatusCode::kInvalidArgument;
      todo = "give a file, not a directory";
      break;
    default:
      break;
  }
  return Status(code, "cannot " + verb + ": " + std::strerror(error_number), path, todo);
}

bool path_exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::uint64_t> file_bytes(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return errno_status("look at the file", path, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Result<std::string> read_file(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  if (file.bytes() == 0) return std::string();
  return std::string(reinterpret_cast<const char*>(file.data()), file.bytes());
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator it(path, error);
  if (error) return errno_status("list the directory", path, error.value());
  for (; it != fs::directory_iterator(); it.increment(error)) {
    if (error) return errno_status("list the directory", path, error.value());
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return errno_status("make the directory", path, error.value());
  if (!is_directory(path)) return errno_status("make the directory", path, ENOTDIR);
  return {};
}

Result<std::uint64_t> free_disk_bytes(const std::string& path) {
  fs::path place = fs::absolute(path);
  while (!place.empty() && !path_exists(place.string()) && place != place.root_path())
    place = place.parent_path();
  struct statvfs info;
  if (::statvfs(place.c_str(), &info) != 0) return errno_status("ask for free space", path, errno);
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

Status remove_all(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return errno_status("remove", path, error.value());
  return {};
}

namespace {
std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}
}  // namespace

Status sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_status("open the directory", path, errno);
  const int failed = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  // Some network file systems refuse fsync on a directory; the rename itself has still happened.
  if (failed != 0 && failed != EINVAL) return errno_status("sync the directory", path, failed);
  return {};
}

Status rename_synced(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return errno_status("rename " + from, to, errno);
  return sync_directory(parent_of(to));
}

Status replace_link(const std::string& target, const std::string& link) {
  const std::string temporary = link + ".tmp";
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0)
    return errno_status("make the link", temporary, errno);
  return rename_synced(temporary, link);
}

// ---------------------------------------------------------------- AtomicFile

AtomicFile::AtomicFile(int fd, std::string path)
    : fd_(fd), path_(std::move(path)), temporary_(path_ + ".tmp") {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      bytes_written_(other.bytes_written_) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status("create the file", path, errno);
  return AtomicFile(fd, path);
}

namespace {
Status write_all(int fd, const void* data, std::size_t bytes, const std::string& path) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd, at, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno_status("write", path, errno);
    }
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return {};
}
}  // namespace

Status AtomicFile::write(const void* data, std::size_t bytes) {
  EAGLET_RETURN_IF_ERROR(write_all(fd_, data, bytes, path_));
  bytes_written_ += bytes;
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(fd_) != 0) return errno_status("sync the file", path_, errno);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return errno_status("close the file", path_, errno);
  return rename_synced(temporary_, path_);
}

Status write_file_atomic(const std::string& path, std::string_view content) {
  EAGLET_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  EAGLET_RETURN_IF_ERROR(file.write(content));
  return file.commit();
}

namespace {

// The file has no name until it is whole, so that a kill leaves nothing. A link is never made over a file
// that is there.
Status link_unnamed(int fd, const std::string& path, std::string_view content) {
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t written = ::write(fd, content.data() + done, content.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_status("write", path, errno);
    done += static_cast<std::size_t>(written);
  }
  if (::fsync(fd) != 0) return errno_status("sync", path, errno);
  const std::string unnamed = "/proc/self/fd/" + std::to_string(fd);
  if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0 && errno != EEXIST)
    return errno_status("give a name to", path, errno);
  return {};
}

}  // namespace

// Where files must have names, or there are no links (some network file systems), the rename may replace
// another's file, which is whole as well.
Status write_file_once(const std::string& path, std::string_view content) {
  if (path_exists(path)) return {};
  const std::string directory = fs::path(path).parent_path().string();
  const int fd = ::open(directory.empty() ? "." : directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0) {
    const Status linked = link_unnamed(fd, path, content);
    ::close(fd);
    if (linked.ok() || linked.code() == StatusCode::kNoSpace) return linked;
  }
  const std::string own = path + "." + std::to_string(getpid());
  EAGLET_RETURN_IF_ERROR(write_file_atomic(own, content));
  return ::rename(own.c_str(), path.c_str()) == 0 ? Status() : errno_status("rename", own, errno);
}

// -------------------------------------------------------------- LineAppender

LineAppender::LineAppender(int fd, std::string path, std::uint64_t cut_bytes)
    : fd_(fd), path_(std::move(path)), cut_bytes_(cut_bytes) {}

LineAppender::LineAppender(LineAppender&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), cut_bytes_(other.cut_bytes_) {}

LineAppender::~LineAppender() {
  if (fd_ >= 0) ::close(fd_);
}

Result<LineAppender> LineAppender::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status("open the file for appending", path, errno);
  LineAppender appender(fd, path, 0);
  const off_t end = ::lseek(fd, 0, SEEK_END);
  off_t keep = end;
  char byte = '\n';
  while (keep > 0 && ::pread(fd, &byte, 1, keep - 1) == 1 && byte != '\n') --keep;
  if (keep != end) {
    if (::ftruncate(fd, keep) != 0) return errno_status("cut the half line at the end", path, errno);
    appender.cut_bytes_ = static_cast<std::uint64_t>(end - keep);
  }
  return appender;
}

Status LineAppender::append(std::string_view line) {
  std::string whole(line);
  whole += '\n';
  return write_all(fd_, whole.data(), whole.size(), path_);
}

Status LineAppender::sync() {
  if (::fdatasync(fd_) != 0) return errno_status("sync the file", path_, errno);
  return {};
}

// ---------------------------------------------------------------- MappedFile

MappedFile::MappedFile(std::string path, const std::byte* data, std::uint64_t bytes)
    : path_(std::move(path)), data_(data), bytes_(bytes) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

namespace {
void hint(const std::byte* data, std::uint64_t size, std::uint64_t offset, std::uint64_t bytes, int advice) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = offset / page * page, end = std::min(size, offset + bytes);
  if (first < end)  // nothing depends on it
    ::madvise(const_cast<std::byte*>(data) + first, end - first, advice);
}
}  // namespace

void MappedFile::release(std::uint64_t offset, std::uint64_t bytes) const {
  hint(data_, bytes_, offset, bytes, MADV_DONTNEED);
}

void MappedFile::expect(std::uint64_t offset, std::uint64_t bytes) const {
  hint(data_, bytes_, offset, bytes, MADV_WILLNEED);
}

void MappedFile::expect_scattered() const {
  hint(data_, bytes_, 0, bytes_, MADV_RANDOM);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_status("open the file", path, errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int failed = errno;
    ::close(fd);
    return errno_status("look at the file", path, failed);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return S_ISDIR(info.st_mode) ? errno_status("open the file", path, EISDIR)
                                 : Status(StatusCode::kInvalidArgument, "not a regular file", path);
  }
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  void* data = nullptr;
  if (bytes > 0) {
    data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    const int failed = errno;
    if (data == MAP_FAILED) {
      ::close(fd);
      return errno_status("map the file", path, failed);
    }
  }
  ::close(fd);
  return MappedFile(path, static_cast<const std::byte*>(data), bytes);
}

// ------------------------------------------------------------- DirectoryLock

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

Result<DirectoryLock> DirectoryLock::take(const std::string& directory) {
  EAGLET_RETURN_IF_ERROR(make_directories(directory));
  const std::string path = directory + "/.lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status("open the lock", path, errno);
  DirectoryLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char owner[32] = {};
    const ssize_t got = ::pread(fd, owner, sizeof owner - 1, 0);
    const std::string pid = got > 0 ? std::string(owner, static_cast<std::size_t>(got)) : "unknown";
    return Status(StatusCode::kBusy, "another eaglet (process " + pid + ") is working in this directory",
                  directory, "wait for it, or give another --output-dir");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0)
    return errno_status("write the lock", path, errno);
  return lock;
}

}  // namespace eaglet
