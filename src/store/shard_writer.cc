#include "store/shard_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/files.h"

namespace eaglet {

std::string describe(const StoreHeader& header) {
  return fmt::format("target '{}' ({}), layers [{}] of {} and the last state {}, width {}, {}",
                     header.target_name, header.target_identity, fmt::join(header.aux_layers, ", "),
                     header.target_layers,
                     header.last_state_is_pre_norm ? "before the final norm" : "after the final norm",
                     header.hidden, dtype_name(header.dtype));
}

Status check_same_header(const StoreHeader& found, const StoreHeader& wanted) {
  StoreHeader renamed = found;
  renamed.target_name = wanted.target_name;  // a name is for people; the identity decides
  if (renamed == wanted) return {};
  return Status(StatusCode::kConfig,
                "the store holds other states: " + describe(found) + "; wanted: " + describe(wanted), "",
                "give another store directory, or the model and layers the store was made with");
}

namespace {
/// How much of the first document is kept in memory for later ones to share.
std::int64_t base_rows(const StoreHeader& header) {
  constexpr std::int64_t kMostNumbers = std::int64_t{1} << 26;  // 128 MiB
  return std::max<std::int64_t>(1, kMostNumbers / (header.slots() * header.hidden));
}
}  // namespace

ShardWriter::ShardWriter(ShardWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      end_(other.end_),
      heads_(std::move(other.heads_)),
      names_(std::move(other.names_)),
      base_(std::move(other.base_)) {}

ShardWriter::~ShardWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Result<ShardWriter> ShardWriter::create(const std::string& path, const StoreHeader& header) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status("create the shard", temporary, errno);
  ShardWriter shard(fd, path);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return errno_status("lock the shard", temporary, errno);
  const std::string bytes = encode_shard_header(header);
  const Status written = shard.write_at(0, bytes.data(), bytes.size());
  if (!written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  shard.end_ = bytes.size();
  return shard;
}

Result<ShardWriter> ShardWriter::recover(const std::string& path, const StoreHeader& header,
                                         std::uint64_t* cut_bytes) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno_status("open the shard", temporary, errno);
  ShardWriter shard(fd, path);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    return Status(StatusCode::kBusy, "another process writes this shard", temporary, "wait for it");
  const Status kept = shard.keep_whole_records(header, cut_bytes);
  if (!kept.ok()) return kept.at(temporary);
  return shard;
}

Status ShardWriter::keep_whole_records(const StoreHeader& header, std::uint64_t* cut_bytes) {
  std::uint64_t file_bytes = 0;
  {
    EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path_ + ".tmp"));
    file_bytes = file.bytes();
    EAGLET_ASSIGN_OR_RETURN(const StoreHeader found, decode_shard_header(file.data(), file_bytes, &end_));
    EAGLET_RETURN_IF_ERROR(check_same_header(found, header));
    while (end_ < file_bytes) {
      const std::byte* record = file.data() + end_;
      const auto head = decode_record_head(header, record, file_bytes - end_);
      DocumentStates document;
      if (!head.ok() || !decode_record_meta(*head, record, &document).ok() ||
          !check_record_states(*head, record).ok())
        break;
      const StateEncoding form = form_of(head->encoding);
      if (heads_.empty() && (form == StateEncoding::kRaw || form == StateEncoding::kPlanes)) {
        const std::int64_t rows = std::min<std::int64_t>(head->tokens, base_rows(header));
        base_.ids.assign(document.input_ids.begin(), document.input_ids.begin() + rows);
        base_.states.resize(static_cast<std::size_t>(rows * header.slots() * header.hidden));
        const ReadBase none = [](std::int64_t, std::vector<std::uint16_t>*) {
          return Status(StatusCode::kDataLoss, "");
        };
        if (!decode_states(header, head->encoding, record + head->states_offset(), head->states_bytes,
                           document.loss_mask, rows, none, base_.states.data())
                 .ok())
          break;
      }
      heads_.push_back(*head);
      names_.push_back(std::move(document.id));
      end_ += head->record_bytes;
    }
  }  // unmapped before it is cut
  *cut_bytes = file_bytes - end_;
  if (*cut_bytes > 0 && ::ftruncate(fd_, static_cast<off_t>(end_)) != 0)
    return errno_status("cut the shard", path_ + ".tmp", errno);
  return {};
}

// Explicit offsets: after a failed write the position is still known.
Status ShardWriter::write_at(std::uint64_t offset, const void* data, std::uint64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd_, at, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_status("write the shard", path_ + ".tmp", errno);
    at += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::uint64_t>(written);
  }
  return {};
}

Status ShardWriter::cut_back(Status reason) {
  // When even this fails the half record stays, and the next open cuts it.
  if (::ftruncate(fd_, static_cast<off_t>(end_)) != 0) return reason;
  return reason;
}

Status ShardWriter::tell_space(const Status& status, std::uint64_t needed_bytes) const {
  if (status.code() != StatusCode::kNoSpace) return status;
  const auto free_bytes = free_disk_bytes(path_);
  return Status(status.code(),
                fmt::format("{} (the next document needs {} bytes, {} are free)", status.what(), needed_bytes,
                            free_bytes.ok() ? std::to_string(*free_bytes) : "an unknown number"),
                status.where(), status.todo());
}

/// What later documents may share with the first one, read back from what was stored (fp8 and dropped rows
/// change it).
Status ShardWriter::take_base(const StoreHeader& header, const DocumentStates& document,
                              std::uint8_t encoding) {
  if (form_of(encoding) != StateEncoding::kPlanes) return {};
  const KeptRows kept = kept_rows(document.loss_mask, (encoding & kDroppedRows) != 0);
  const std::int64_t rows = std::min(kept.aux_rows, base_rows(header));
  const auto numbers = static_cast<std::ptrdiff_t>(rows * header.slots() * header.hidden);
  base_.ids.assign(document.input_ids.begin(), document.input_ids.begin() + rows);
  base_.states.assign(document.states.begin(), document.states.begin() + numbers);
  return {};
}

Status ShardWriter::append(const StoreHeader& header, const DocumentStates& document, std::uint8_t encoding) {
  static constexpr char kZeros[kShardAlignment] = {};
  std::string meta, packed;
  const void* payload = document.states.data();
  std::uint64_t payload_bytes = document.states.size() * sizeof(std::uint16_t);
  if (encoding != static_cast<std::uint8_t>(StateEncoding::kRaw)) {
    EAGLET_ASSIGN_OR_RETURN(packed,
                            encode_states(header, encoding, document, heads_.empty() ? nullptr : &base_));
    payload = packed.data();
    payload_bytes = packed.size();
  }
  const RecordHead head = encode_record(document, encoding, payload, payload_bytes, &meta);
  const std::uint64_t states_at = end_ + head.states_offset(), states_end = states_at + head.states_bytes;
  const std::uint64_t record_end = end_ + head.record_bytes;
  Status written = write_at(end_, &head, sizeof head);
  if (written.ok()) written = write_at(end_ + head.meta_offset(), meta.data(), meta.size());
  if (written.ok()) written = write_at(states_at, payload, payload_bytes);
  if (written.ok()) written = write_at(states_end, kZeros, record_end - states_end);
  if (!written.ok()) return cut_back(tell_space(written, head.record_bytes));
  end_ = record_end;
  if (heads_.empty()) EAGLET_RETURN_IF_ERROR(take_base(header, document, encoding));
  heads_.push_back(head);
  names_.push_back(document.id);
  return {};
}

Status ShardWriter::sync() {
  if (::fdatasync(fd_) != 0) return errno_status("sync the shard", path_ + ".tmp", errno);
  return {};
}

Status ShardWriter::finish() {
  const std::string directory = encode_directory(heads_, names_, end_);
  const Status written = write_at(end_, directory.data(), directory.size());
  if (!written.ok()) return cut_back(written);
  if (::fsync(fd_) != 0) return cut_back(errno_status("sync the shard", path_ + ".tmp", errno));
  return rename_synced(path_ + ".tmp", path_);
}

}  // namespace eaglet
