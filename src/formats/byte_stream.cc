#include "formats/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/files.h"

namespace eaglet {
namespace {

constexpr std::size_t kPackedBytes = 128 * 1024;

/// The file itself; owns the descriptor.
class FileBytes : public ByteStream {
 public:
  FileBytes(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~FileBytes() override { ::close(fd_); }
  Result<std::size_t> read(char* to, std::size_t room) override {
    for (;;) {
      const ssize_t got = ::read(fd_, to, room);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) return errno_status("read", path_, errno);
    }
  }
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

Status damaged_stream(const std::string& path, const std::string& what) {
  return Status(StatusCode::kDataLoss, what, path, "unpack it with its own tool to see how much is readable");
}

class GzipBytes : public ByteStream {
 public:
  explicit GzipBytes(std::unique_ptr<FileBytes> file) : file_(std::move(file)), packed_(kPackedBytes) {
    std::memset(&stream_, 0, sizeof stream_);
    ready_ = inflateInit2(&stream_, 15 + 16) == Z_OK;  // 15: largest window; 16: gzip only
  }
  ~GzipBytes() override {
    if (ready_) inflateEnd(&stream_);
  }
  Result<std::size_t> read(char* to, std::size_t room) override {
    if (!ready_) return Status(StatusCode::kNoSpace, "no memory to unpack gzip", file_->path());
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(room);
    while (stream_.avail_out == room) {
      if (stream_.avail_in == 0) {
        EAGLET_RETURN_IF_ERROR(fill());
        if (stream_.avail_in == 0) {
          if (inside_) return damaged_stream(file_->path(), "the gzip file is cut short");
          return std::size_t{0};
        }
      }
      if (!inside_ && inflateReset(&stream_) != Z_OK)
        return damaged_stream(file_->path(), "gzip cannot go on");
      inside_ = true;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        inside_ = false;  // another member may follow
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return damaged_stream(file_->path(), std::string("the gzip data is damaged: ") +
                                                 (stream_.msg != nullptr ? stream_.msg : "wrong bytes"));
      }
    }
    return room - stream_.avail_out;
  }

 private:
  Status fill() {
    EAGLET_ASSIGN_OR_RETURN(const std::size_t got, file_->read(packed_.data(), packed_.size()));
    stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return {};
  }
  std::unique_ptr<FileBytes> file_;
  std::vector<char> packed_;
  z_stream stream_;
  bool ready_ = false, inside_ = false;
};

class ZstdBytes : public ByteStream {
 public:
  explicit ZstdBytes(std::unique_ptr<FileBytes> file)
      : file_(std::move(file)), packed_(kPackedBytes), stream_(ZSTD_createDStream()) {
    // A frame may ask for a window of gigabytes; 128 MiB is what zstd's own tool allows unasked.
    if (stream_ != nullptr) ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 27);
  }
  ~ZstdBytes() override { ZSTD_freeDStream(stream_); }
  Result<std::size_t> read(char* to, std::size_t room) override {
    if (stream_ == nullptr) return Status(StatusCode::kNoSpace, "no memory to unpack zstd", file_->path());
    ZSTD_outBuffer out = {to, room, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        EAGLET_ASSIGN_OR_RETURN(const std::size_t got, file_->read(packed_.data(), packed_.size()));
        if (got == 0) {
          if (inside_) return damaged_stream(file_->path(), "the zstd file is cut short");
          return std::size_t{0};
        }
        in_ = {packed_.data(), got, 0};
      }
      const std::size_t left = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(left))
        return damaged_stream(file_->path(),
                              std::string("the zstd data is damaged: ") + ZSTD_getErrorName(left));
      inside_ = left != 0;
    }
    return out.pos;
  }

 private:
  std::unique_ptr<FileBytes> file_;
  std::vector<char> packed_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  bool inside_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteStream>> ByteStream::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_status("open", path, errno);
  auto file = std::make_unique<FileBytes>(fd, path);
  unsigned char head[4] = {0, 0, 0, 0};
  const ssize_t got = ::pread(fd, head, sizeof head, 0);
  if (got < 0 && errno == EISDIR) return errno_status("read", path, errno);
  // A pipe cannot be looked into; it is taken as plain text.
  if (got >= 2 && head[0] == 0x1f && head[1] == 0x8b)
    return std::unique_ptr<ByteStream>(std::make_unique<GzipBytes>(std::move(file)));
  if (got == 4 && head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd)
    return std::unique_ptr<ByteStream>(std::make_unique<ZstdBytes>(std::move(file)));
  return std::unique_ptr<ByteStream>(std::move(file));
}

}  // namespace eaglet
