#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace eaglet {

/// A FlatBuffers message, read without trusting it: whoever leaves the bytes gets zeros, and ok() is false
/// from then on. Source: the FlatBuffers internals page, "Tables", "Vectors".
class FlatBuffer {
 public:
  FlatBuffer(const std::byte* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}
  bool ok() const { return ok_; }

  template <class T>
  T at(std::uint64_t place) {
    T value = {};
    if (place > bytes_ || bytes_ - place < sizeof(T)) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, data_ + place, sizeof(T));
    return value;
  }
  std::uint64_t root() { return at<std::uint32_t>(0); }
  /// Where field number `field` of the table at `table` lies; 0: the table has none.
  std::uint64_t field(std::uint64_t table, unsigned field) {
    const std::int64_t vtable = static_cast<std::int64_t>(table) - at<std::int32_t>(table);
    if (vtable < 0) ok_ = false;
    if (!ok_) return 0;
    const auto place = static_cast<std::uint64_t>(vtable);
    if (at<std::uint16_t>(place) < 6 + 2 * field) return 0;
    const std::uint16_t offset = at<std::uint16_t>(place + 4 + 2 * field);
    return offset == 0 ? 0 : table + offset;
  }
  template <class T>
  T number(std::uint64_t table, unsigned number, T absent = {}) {
    const std::uint64_t place = field(table, number);
    return place == 0 ? absent : at<T>(place);
  }
  /// The table, vector or string that a field refers to; 0: none.
  std::uint64_t reference(std::uint64_t table, unsigned number) {
    const std::uint64_t place = field(table, number);
    return place == 0 ? 0 : place + at<std::uint32_t>(place);
  }
  /// Elements of a vector; its first lies 4 bytes behind.
  std::uint64_t length(std::uint64_t vector, std::uint64_t element_bytes) {
    if (vector == 0) return 0;
    const std::uint64_t count = at<std::uint32_t>(vector);
    if (!ok_ || count > (bytes_ - vector - 4) / element_bytes) {
      ok_ = false;
      return 0;
    }
    return count;
  }
  std::string text(std::uint64_t string) {
    const std::uint64_t count = length(string, 1);
    return ok_ && count > 0 ? std::string(reinterpret_cast<const char*>(data_ + string + 4), count)
                            : std::string();
  }

 private:
  const std::byte* data_;
  std::uint64_t bytes_;
  bool ok_ = true;
};

}  // namespace eaglet
