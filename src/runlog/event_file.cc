#include "runlog/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/host_name.h"

namespace eaglet {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little endian");

template <class T>
void put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_varint(std::string* bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
}

// Protobuf wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
void put_key(std::string* bytes, unsigned field, unsigned wire_type) {
  bytes->push_back(static_cast<char>(field << 3 | wire_type));
}

void put_bytes(std::string* bytes, unsigned field, std::string_view content) {
  put_key(bytes, field, 2);
  put_varint(bytes, content.size());
  bytes->append(content);
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

std::string frame_record(std::string_view payload) {
  std::string record;
  put(&record, static_cast<std::uint64_t>(payload.size()));
  put(&record, masked_crc(record));
  record += payload;
  put(&record, masked_crc(payload));
  return record;
}

std::string version_event(double wall_time_seconds) {
  std::string event;
  put_key(&event, 1, 1);
  put(&event, wall_time_seconds);
  put_bytes(&event, 3, "brain.Event:2");
  return event;
}

std::string scalars_event(double wall_time_seconds, std::int64_t step,
                          const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(&value, 1, tag);
    put_key(&value, 2, 5);
    put(&value, static_cast<float>(number));
    put_bytes(&summary, 1, value);
  }
  std::string event;
  put_key(&event, 1, 1);
  put(&event, wall_time_seconds);
  if (step != 0) {  // proto3 leaves a zero out
    put_key(&event, 2, 0);
    put_varint(&event, static_cast<std::uint64_t>(step));
  }
  put_bytes(&event, 5, summary);
  return event;
}

EventWriter::EventWriter(EventWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

EventWriter::~EventWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Result<EventWriter> EventWriter::open(const std::string& directory) {
  const std::string host = host_name();
  const double now = wall_seconds();
  for (int n = 0;; ++n) {  // two starts within one second by one process get different n
    const std::string path = fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}", directory,
                                         static_cast<std::int64_t>(now), host, ::getpid(), n);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return errno_status("create the file", path, errno);
    EventWriter writer(fd, path);
    EAGLET_RETURN_IF_ERROR(writer.append(frame_record(version_event(now))));
    return writer;
  }
}

Status EventWriter::write(double wall_time_seconds, std::int64_t step,
                          const std::vector<std::pair<std::string, double>>& scalars) {
  return append(frame_record(scalars_event(wall_time_seconds, step, scalars)));
}

Status EventWriter::append(const std::string& bytes) {
  const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
  if (written == static_cast<ssize_t>(bytes.size())) return {};
  return errno_status("write", path_, written < 0 ? errno : ENOSPC);
}

}  // namespace eaglet
