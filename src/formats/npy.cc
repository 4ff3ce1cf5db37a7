#include "formats/npy.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "base/files.h"

namespace eaglet {
namespace {

constexpr char kMagic[] = "\x93NUMPY";

Status corrupt_npy(const std::string& what) {
  return Status(StatusCode::kDataLoss, "not a whole NumPy file: " + what, "", "write this file again");
}

/// What stands behind 'name': in the header, a Python dict of three entries.
std::string_view field(std::string_view header, const std::string& name) {
  const std::size_t at = header.find("'" + name + "'");
  if (at == header.npos) return {};
  const std::size_t colon = header.find(':', at);
  if (colon == header.npos) return {};
  header.remove_prefix(header.find_first_not_of(" :", colon) == header.npos
                           ? header.size()
                           : header.find_first_not_of(" :", colon));
  return header;
}

struct Kind {
  std::string_view name;
  int bytes;
  bool is_signed;
};
constexpr Kind kKinds[] = {{"'<i8'", 8, true},  {"'<i4'", 4, true},  {"'<i2'", 2, true},
                           {"'|i1'", 1, true},  {"'|u1'", 1, false}, {"'|b1'", 1, false},
                           {"'<u4'", 4, false}, {"'<u2'", 2, false}};

template <class T>
void widen(const std::byte* data, std::vector<std::int64_t>* values) {
  for (std::size_t i = 0; i < values->size(); ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    (*values)[i] = static_cast<std::int64_t>(value);
  }
}

void widen(const Kind& kind, const std::byte* data, std::vector<std::int64_t>* values) {
  switch (kind.bytes) {
    case 8:
      return widen<std::int64_t>(data, values);
    case 4:
      return kind.is_signed ? widen<std::int32_t>(data, values) : widen<std::uint32_t>(data, values);
    case 2:
      return kind.is_signed ? widen<std::int16_t>(data, values) : widen<std::uint16_t>(data, values);
    default:
      return kind.is_signed ? widen<std::int8_t>(data, values) : widen<std::uint8_t>(data, values);
  }
}

/// The one number of "(24,)"; -1 for anything else.
std::int64_t one_dimension(std::string_view shape) {
  if (shape.empty() || shape.front() != '(') return -1;
  shape.remove_prefix(1);
  std::int64_t count = 0;
  std::size_t digits = 0;
  for (; digits < shape.size() && shape[digits] >= '0' && shape[digits] <= '9'; ++digits) {
    if (digits > 12) return -1;
    count = count * 10 + (shape[digits] - '0');
  }
  return digits > 0 && shape.substr(digits).starts_with(",)") ? count : -1;
}

Status write_npy(const std::string& path, const char* kind, std::size_t count, const void* data,
                 std::size_t bytes) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", kind, count);
  const std::size_t whole = (10 + header.size() + 1 + 63) / 64 * 64;
  header.resize(whole - 11, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::string file(kMagic, 6);
  file += std::string("\1\0", 2);
  file.append(reinterpret_cast<const char*>(&length), 2);
  file += header;
  file.append(static_cast<const char*>(data), bytes);
  return write_file_atomic(path, file);
}

}  // namespace

Result<std::vector<std::int64_t>> parse_npy_integers(const std::byte* data, std::uint64_t bytes) {
  if (bytes < 12 || std::memcmp(data, kMagic, 6) != 0) return corrupt_npy("no NumPy magic");
  const int version = static_cast<int>(data[6]);
  std::uint64_t start = 10, length = 0;
  std::uint16_t short_length = 0;
  std::uint32_t long_length = 0;
  if (version == 1) {
    std::memcpy(&short_length, data + 8, 2);
    length = short_length;
  } else if (version == 2) {
    std::memcpy(&long_length, data + 8, 4);
    length = long_length;
    start = 12;
  } else {
    return Status(StatusCode::kConfig, fmt::format("NumPy file version {}", version));
  }
  if (length > bytes - start) return corrupt_npy("its header is cut");
  const std::string_view header(reinterpret_cast<const char*>(data) + start, length);
  const std::int64_t count = one_dimension(field(header, "shape"));
  if (count < 0 || field(header, "fortran_order").empty())
    return Status(StatusCode::kConfig, "not one list of numbers", "", "a map is a one-dimensional array");
  for (const Kind& kind : kKinds) {
    if (!field(header, "descr").starts_with(kind.name)) continue;
    if (bytes - start - length != static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(kind.bytes))
      return corrupt_npy(fmt::format("{} numbers are announced in {} bytes", count, bytes - start - length));
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    widen(kind, data + start + length, &values);
    return values;
  }
  return Status(StatusCode::kConfig, "an array of " + std::string(field(header, "descr").substr(0, 12)), "",
                "only whole numbers and truth values, little-endian, are read");
}

Result<std::vector<std::int64_t>> read_npy_integers(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  auto values = parse_npy_integers(file.data(), file.bytes());
  if (!values.ok()) return values.status().at(path);
  return values;
}

Status write_npy_int64(const std::string& path, const std::vector<std::int64_t>& values) {
  return write_npy(path, "<i8", values.size(), values.data(), values.size() * 8);
}

Status write_npy_bool(const std::string& path, const std::vector<std::uint8_t>& values) {
  return write_npy(path, "|b1", values.size(), values.data(), values.size());
}

}  // namespace eaglet
