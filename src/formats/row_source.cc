#include "formats/row_source.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "formats/arrow_rows.h"
#include "formats/byte_stream.h"

namespace eaglet {
namespace {

constexpr std::size_t kChunkBytes = 256 * 1024;
constexpr std::size_t kMostRowBytes = std::size_t{64} << 20;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// What both kinds of files share: a buffer over the bytes.
class BufferedRows : public RowSource {
 public:
  BufferedRows(std::unique_ptr<ByteStream> bytes, std::string path, std::string begun)
      : bytes_(std::move(bytes)), path_(std::move(path)), buffer_(std::move(begun)) {}

 protected:
  /// Adds bytes to the buffer; false at the end.
  Result<bool> more() {
    if (ended_) return false;
    if (at_ > 0) {
      buffer_.erase(0, at_);
      at_ = 0;
    }
    if (buffer_.size() > kMostRowBytes)
      return Status(StatusCode::kDataLoss, fmt::format("{} {} is longer than 64 MiB", unit(), number_ + 1),
                    path_, "give a file with one conversation a line");
    const std::size_t had = buffer_.size();
    buffer_.resize(had + kChunkBytes);
    EAGLET_ASSIGN_OR_RETURN(const std::size_t got, bytes_->read(buffer_.data() + had, kChunkBytes));
    buffer_.resize(had + got);
    ended_ = got == 0;
    return !ended_;
  }

  std::unique_ptr<ByteStream> bytes_;
  std::string path_, buffer_;
  std::size_t at_ = 0;  // what lies before it was handed out
  std::uint64_t number_ = 0;
  bool ended_ = false;
};

class Lines : public BufferedRows {
 public:
  using BufferedRows::BufferedRows;
  const char* unit() const override { return "line"; }
  Result<bool> next(RowText* row) override {
    std::size_t searched = at_;
    for (;;) {
      const std::size_t end = buffer_.find('\n', searched);
      if (end != std::string::npos) return take(row, end, end + 1, false);
      searched = buffer_.size() - at_;  // after more() the row begins at 0
      EAGLET_ASSIGN_OR_RETURN(const bool grew, more());
      if (!grew) break;
    }
    if (at_ >= buffer_.size()) return false;
    return take(row, buffer_.size(), buffer_.size(), true);
  }

 private:
  bool take(RowText* row, std::size_t end, std::size_t next_at, bool unfinished) {
    row->text.assign(buffer_, at_, end - at_);
    row->number = ++number_;
    row->unfinished = unfinished;
    at_ = next_at;
    return true;
  }
};

/// The elements of one JSON list: told apart by brackets and strings only, each is parsed by its reader.
class Elements : public BufferedRows {
 public:
  using BufferedRows::BufferedRows;
  const char* unit() const override { return "row"; }
  Result<bool> next(RowText* row) override {
    EAGLET_ASSIGN_OR_RETURN(const bool there, skip_to_element());
    if (!there) return false;
    std::size_t scanned = 0;
    int depth = 0;
    bool in_string = false, escaped = false;
    for (;;) {
      for (; at_ + scanned < buffer_.size(); ++scanned) {
        const char c = buffer_[at_ + scanned];
        if (in_string) {
          if (escaped)
            escaped = false;
          else if (c == '\\')
            escaped = true;
          else if (c == '"')
            in_string = false;
        } else if (c == '"') {
          in_string = true;
        } else if (c == '[' || c == '{') {
          ++depth;
        } else if (depth > 0 && (c == ']' || c == '}')) {
          --depth;
        } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
          return take(row, scanned, false);
        }
      }
      EAGLET_ASSIGN_OR_RETURN(const bool grew, more());
      if (!grew) return take(row, scanned, true);
    }
  }

 private:
  Result<bool> skip_to_element() {
    for (;;) {
      while (at_ < buffer_.size()) {
        const char c = buffer_[at_];
        if (c == ']') closed_ = true;
        if (closed_) return false;
        if (!is_space(c) && c != ',' && !(c == '[' && !opened_)) return true;
        if (c == '[') opened_ = true;
        ++at_;
      }
      EAGLET_ASSIGN_OR_RETURN(const bool grew, more());
      if (grew) continue;
      if (!closed_)
        return Status(StatusCode::kDataLoss, fmt::format("the list of rows has no end after row {}", number_),
                      path_, "the file was cut; get it again");
      return false;
    }
  }
  bool take(RowText* row, std::size_t length, bool unfinished) {
    row->text.assign(buffer_, at_, length);
    row->number = ++number_;
    row->unfinished = unfinished;
    at_ += length;
    closed_ = closed_ || unfinished;
    return true;
  }
  bool opened_ = false, closed_ = false;
};

}  // namespace

Result<std::unique_ptr<RowSource>> RowSource::open(const std::string& path) {
  if (path.ends_with(".arrow")) return open_arrow_rows({path});
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> arrow, arrow_files(path));
  if (!arrow.empty()) return open_arrow_rows(arrow);
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> bytes, ByteStream::open(path));
  std::string begun;
  std::size_t first = std::string::npos;
  while (first == std::string::npos && begun.size() < kMostRowBytes) {
    const std::size_t had = begun.size();
    begun.resize(had + kChunkBytes);
    EAGLET_ASSIGN_OR_RETURN(const std::size_t got, bytes->read(begun.data() + had, kChunkBytes));
    begun.resize(had + got);
    if (got == 0) break;
    first = begun.find_first_not_of(" \t\r\n");
  }
  if (first != std::string::npos && begun[first] == '[')
    return std::unique_ptr<RowSource>(std::make_unique<Elements>(std::move(bytes), path, std::move(begun)));
  return std::unique_ptr<RowSource>(std::make_unique<Lines>(std::move(bytes), path, std::move(begun)));
}

}  // namespace eaglet
