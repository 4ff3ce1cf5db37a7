#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace eaglet {
namespace {

using nlohmann::json;

// The reference implementation refuses headers above 100 MB; so do we, before allocating anything.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

Status corrupt_safetensors(const std::string& what) {
  return Status(StatusCode::kDataLoss, what, "",
                "fetch or write this file again: it is damaged or not a safetensors file");
}

bool checked_multiply(std::uint64_t a, std::uint64_t b, std::uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

Result<SafetensorsEntry> parse_entry(const std::string& name, const json& value, std::uint64_t data_bytes) {
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets") || !value["dtype"].is_string() || !value["shape"].is_array() ||
      !value["data_offsets"].is_array() || value["data_offsets"].size() != 2)
    return corrupt_safetensors(fmt::format("tensor '{}' has no proper dtype, shape and data_offsets", name));
  SafetensorsEntry entry;
  entry.name = name;
  const auto dtype = dtype_from_name(value["dtype"].get_ref<const std::string&>());
  if (!dtype)
    return corrupt_safetensors(
        fmt::format("tensor '{}' has the unknown dtype {}", name, value["dtype"].dump()));
  entry.dtype = *dtype;
  std::uint64_t bytes = dtype_bytes(*dtype);
  for (const json& size : value["shape"]) {
    if (!size.is_number_unsigned() ||
        size.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return corrupt_safetensors(fmt::format("tensor '{}' has a size that is not a whole number >= 0", name));
    entry.shape.push_back(size.get<std::int64_t>());
    if (!checked_multiply(bytes, size.get<std::uint64_t>(), &bytes))
      return corrupt_safetensors(fmt::format("tensor '{}' is larger than 64 bits can count", name));
  }
  const json& offsets = value["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    return corrupt_safetensors(fmt::format("tensor '{}' has offsets that are not whole numbers >= 0", name));
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes)
    return corrupt_safetensors(
        fmt::format("tensor '{}' lies at bytes {}-{} of {}", name, begin, end, data_bytes));
  if (end - begin != bytes)
    return corrupt_safetensors(
        fmt::format("tensor '{}' needs {} bytes but its offsets hold {}", name, bytes, end - begin));
  entry.offset = begin;
  entry.bytes = bytes;
  return entry;
}

template <class T>
void widen_to_i64(const std::byte* from, std::size_t n, std::vector<std::int64_t>* to) {
  for (std::size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    (*to)[i] = static_cast<std::int64_t>(value);
  }
}

}  // namespace

std::int64_t SafetensorsEntry::elements() const {
  std::int64_t n = 1;
  for (std::int64_t size : shape) n *= size;
  return n;
}

Result<std::vector<SafetensorsEntry>> SafetensorsFile::parse_header(
    const std::byte* data, std::uint64_t bytes, std::map<std::string, std::string>* metadata,
    std::uint64_t* data_start) {
  if (bytes < 8)
    return corrupt_safetensors(fmt::format("the file has {} bytes, too few for a safetensors header", bytes));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, data, 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes - 8)
    return corrupt_safetensors(
        fmt::format("the header claims {} bytes in a file of {}", header_bytes, bytes));
  const char* text = reinterpret_cast<const char*>(data + 8);
  const json header = json::parse(text, text + header_bytes, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return corrupt_safetensors("the header is not a JSON object");
  *data_start = 8 + header_bytes;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return corrupt_safetensors("__metadata__ is not an object");
      for (const auto& [key, item] : value.items()) {
        if (!item.is_string())
          return corrupt_safetensors("__metadata__ holds something that is not a string");
        (*metadata)[key] = item.get<std::string>();
      }
      continue;
    }
    EAGLET_ASSIGN_OR_RETURN(SafetensorsEntry entry, parse_entry(name, value, bytes - *data_start));
    entries.push_back(std::move(entry));
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (const SafetensorsEntry& entry : entries) spans.emplace_back(entry.offset, entry.offset + entry.bytes);
  std::sort(spans.begin(), spans.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : spans) {
    if (begin != at)
      return corrupt_safetensors(fmt::format("the tensors leave a hole or overlap at byte {}", at));
    at = end;
  }
  if (at != bytes - *data_start)
    return corrupt_safetensors(
        fmt::format("the tensors cover {} bytes but the file holds {}", at, bytes - *data_start));
  return entries;  // json objects are sorted by key, so these are too
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  SafetensorsFile file(std::move(mapped));
  auto entries = parse_header(file.file_.data(), file.file_.bytes(), &file.metadata_, &file.data_start_);
  if (!entries.ok()) return entries.status().at(path);
  file.entries_ = std::move(*entries);
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto it =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const SafetensorsEntry& e, const std::string& n) { return e.name < n; });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

Result<std::vector<float>> SafetensorsFile::read_f32(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) return Status(StatusCode::kNotFound, "there is no tensor '" + name + "'", path());
  std::vector<float> values(static_cast<std::size_t>(entry->elements()));
  if (!convert_to_f32(entry->dtype, data(*entry), values.size(), values.data()))
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("tensor '{}' is {}, not a floating-point type we read", name, dtype_name(entry->dtype)),
        path());
  return values;
}

Result<std::vector<std::int64_t>> SafetensorsFile::read_i64(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) return Status(StatusCode::kNotFound, "there is no tensor '" + name + "'", path());
  std::vector<std::int64_t> values(static_cast<std::size_t>(entry->elements()));
  const std::byte* from = data(*entry);
  switch (entry->dtype) {
    case Dtype::kI64:
      widen_to_i64<std::int64_t>(from, values.size(), &values);
      break;
    case Dtype::kI32:
      widen_to_i64<std::int32_t>(from, values.size(), &values);
      break;
    case Dtype::kI16:
      widen_to_i64<std::int16_t>(from, values.size(), &values);
      break;
    case Dtype::kI8:
      widen_to_i64<std::int8_t>(from, values.size(), &values);
      break;
    case Dtype::kU16:
      widen_to_i64<std::uint16_t>(from, values.size(), &values);
      break;
    case Dtype::kU32:
      widen_to_i64<std::uint32_t>(from, values.size(), &values);
      break;
    case Dtype::kU8:
    case Dtype::kBool:
      widen_to_i64<std::uint8_t>(from, values.size(), &values);
      break;
    default:
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor '{}' is {}, not a whole-number type", name, dtype_name(entry->dtype)),
                    path());
  }
  return values;
}

Status write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                         const std::map<std::string, std::string>& metadata, const TensorBytes& bytes_of) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  std::vector<std::uint64_t> sizes;
  for (const TensorView& tensor : tensors) {
    std::uint64_t bytes = dtype_bytes(tensor.dtype);
    for (std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
    header[tensor.name] = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    sizes.push_back(bytes);
    at += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t header_bytes = text.size();
  EAGLET_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  EAGLET_RETURN_IF_ERROR(file.write(&header_bytes, 8));
  EAGLET_RETURN_IF_ERROR(file.write(text));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const void* data = tensors[i].data;
    if (data == nullptr && bytes_of && sizes[i] > 0) {
      EAGLET_ASSIGN_OR_RETURN(data, bytes_of(i));
    }
    EAGLET_RETURN_IF_ERROR(file.write(data, sizes[i]));
  }
  return file.commit();
}

}  // namespace eaglet
