#include "runlog/event_reader.h"

#include <cstring>
#include <optional>

#include "base/hash.h"

namespace eaglet {
namespace {

constexpr std::size_t kHeaderBytes = 12, kFooterBytes = 4;

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
constexpr bool kCheck = false;  // no made-up input would get past the checksums
#else
constexpr bool kCheck = true;
#endif

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
T load(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Walks the fields of one protobuf message. Unknown fields are passed over; a broken message ends the walk.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  struct Field {
    unsigned number = 0, wire = 0;
    std::uint64_t varint = 0;  // also the raw bits of fixed 32 and 64
    std::string_view bytes;
  };
  std::optional<Field> next() {
    Field field;
    std::uint64_t key = 0;
    if (!varint(&key)) return std::nullopt;
    field.number = static_cast<unsigned>(key >> 3);
    field.wire = static_cast<unsigned>(key & 7);
    switch (field.wire) {
      case 0:
        return varint(&field.varint) ? std::optional(field) : std::nullopt;
      case 1:
        return fixed(8, &field) ? std::optional(field) : std::nullopt;
      case 2: {
        std::uint64_t length = 0;
        if (!varint(&length) || length > bytes_.size()) return std::nullopt;
        field.bytes = bytes_.substr(0, length);
        bytes_.remove_prefix(length);
        return field;
      }
      case 5:
        return fixed(4, &field) ? std::optional(field) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

 private:
  bool varint(std::uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return false;
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      *value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool fixed(std::size_t count, Field* field) {
    if (bytes_.size() < count) return false;
    std::memcpy(&field->varint, bytes_.data(), count);  // little endian, as this machine
    bytes_.remove_prefix(count);
    return true;
  }
  std::string_view bytes_;
};

double as_double(std::uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
float as_float(std::uint64_t bits) {
  float value;
  const auto low = static_cast<std::uint32_t>(bits);
  std::memcpy(&value, &low, sizeof value);
  return value;
}

/// A tensor of one float or double.
std::optional<double> tensor_value(std::string_view bytes) {
  constexpr unsigned kFloat = 1, kDouble = 2;
  unsigned dtype = 0;
  std::string_view content;
  std::optional<double> listed;
  for (Fields fields(bytes); const auto field = fields.next();) {
    if (field->number == 1 && field->wire == 0) dtype = static_cast<unsigned>(field->varint);
    if (field->number == 4 && field->wire == 2) content = field->bytes;
    if (field->number == 5 && field->wire == 2 && field->bytes.size() == 4)
      listed = load<float>(field->bytes, 0);
    if (field->number == 5 && field->wire == 5) listed = as_float(field->varint);
    if (field->number == 6 && field->wire == 2 && field->bytes.size() == 8)
      listed = load<double>(field->bytes, 0);
    if (field->number == 6 && field->wire == 1) listed = as_double(field->varint);
  }
  if (dtype == kFloat && content.size() == 4) return load<float>(content, 0);
  if (dtype == kDouble && content.size() == 8) return load<double>(content, 0);
  return listed;
}

void read_summary(std::string_view bytes, double wall, std::int64_t step, std::vector<ScalarEvent>* events) {
  for (Fields values(bytes); const auto value = values.next();) {
    if (value->number != 1 || value->wire != 2) continue;
    ScalarEvent event;
    std::optional<double> number;
    for (Fields fields(value->bytes); const auto field = fields.next();) {
      if (field->number == 1 && field->wire == 2) event.tag = std::string(field->bytes.substr(0, 256));
      if (field->number == 2 && field->wire == 5) number = as_float(field->varint);
      if (field->number == 8 && field->wire == 2) number = tensor_value(field->bytes);
    }
    if (!number || event.tag.empty()) continue;
    event.wall_time_seconds = wall;
    event.step = step;
    event.value = *number;
    events->push_back(std::move(event));
  }
}

void read_event(std::string_view payload, std::vector<ScalarEvent>* events) {
  double wall = 0;
  std::int64_t step = 0;
  std::string_view summary;
  for (Fields fields(payload); const auto field = fields.next();) {
    if (field->number == 1 && field->wire == 1) wall = as_double(field->varint);
    if (field->number == 2 && field->wire == 0) step = static_cast<std::int64_t>(field->varint);
    if (field->number == 5 && field->wire == 2) summary = field->bytes;
  }
  read_summary(summary, wall, step, events);
}

}  // namespace

Status EventReader::feed(std::string_view bytes, std::vector<ScalarEvent>* events) {
  if (!broken_) pending_.append(bytes);
  std::size_t at = 0;
  while (!broken_ && pending_.size() - at >= kHeaderBytes) {
    const std::string_view record = std::string_view(pending_).substr(at);
    const auto length = load<std::uint64_t>(record, 0);
    if ((kCheck && load<std::uint32_t>(record, 8) != masked(record.substr(0, 8))) || length > kLongestRecord) {
      broken_ = true;
      break;
    }
    if (record.size() < kHeaderBytes + length + kFooterBytes) break;
    const std::string_view payload = record.substr(kHeaderBytes, length);
    if (kCheck && load<std::uint32_t>(record, kHeaderBytes + length) != masked(payload)) {
      broken_ = true;
      break;
    }
    read_event(payload, events);
    at += kHeaderBytes + length + kFooterBytes;
  }
  good_bytes_ += at;
  pending_.erase(0, at);
  if (!broken_) return {};
  pending_.clear();
  return Status(StatusCode::kDataLoss, "a record of the event file has a wrong checksum",
                "byte " + std::to_string(good_bytes_), "what stands before it was read");
}

}  // namespace eaglet
