#include "formats/torch_tensor.h"

#include <fmt/format.h>

namespace eaglet {
namespace {

struct NamedDtype {
  std::string_view name;
  Dtype dtype;
};
constexpr NamedDtype kStorages[] = {
    {"FloatStorage", Dtype::kF32}, {"DoubleStorage", Dtype::kF64},    {"HalfStorage", Dtype::kF16},
    {"LongStorage", Dtype::kI64},  {"BFloat16Storage", Dtype::kBF16}, {"IntStorage", Dtype::kI32},
    {"ShortStorage", Dtype::kI16}, {"CharStorage", Dtype::kI8},       {"ByteStorage", Dtype::kU8},
    {"BoolStorage", Dtype::kBool}, {"UntypedStorage", Dtype::kU8}};
constexpr NamedDtype kDtypes[] = {
    {"float8_e4m3fn", Dtype::kF8E4M3}, {"float8_e5m2", Dtype::kF8E5M2}, {"uint16", Dtype::kU16},
    {"uint32", Dtype::kU32},           {"uint64", Dtype::kU64},         {"float32", Dtype::kF32},
    {"bfloat16", Dtype::kBF16},        {"float16", Dtype::kF16},        {"int64", Dtype::kI64}};

template <std::size_t N>
std::optional<Dtype> dtype_of(const NamedDtype (&table)[N], std::string_view name) {
  for (const NamedDtype& entry : table)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

}  // namespace

std::optional<Dtype> torch_storage_dtype(std::string_view name) {
  return dtype_of(kStorages, name);
}

std::optional<Dtype> torch_dtype(std::string_view name) {
  return dtype_of(kDtypes, name);
}

Status corrupt_pickle(const std::string& what) {
  return Status(StatusCode::kDataLoss, "the pickle in it is damaged: " + what, "",
                "fetch or write this file again");
}
Status place_tensor(const TorchStorage& storage, std::int64_t offset, TorchTensor* tensor) {
  const std::uint64_t size = dtype_bytes(tensor->dtype);
  const std::uint64_t available = storage.bytes / size;
  std::uint64_t last = static_cast<std::uint64_t>(offset), count = 1;
  for (std::size_t i = 0; i < tensor->shape.size(); ++i) {
    const auto n = static_cast<std::uint64_t>(tensor->shape[i]);
    std::uint64_t reach = 0;
    if (__builtin_mul_overflow(count, n, &count))
      return corrupt_pickle("a tensor larger than 64 bits can count");
    if (n == 0) continue;
    if (__builtin_mul_overflow(n - 1, static_cast<std::uint64_t>(tensor->stride[i]), &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return corrupt_pickle("a tensor larger than 64 bits can count");
  }
  if (count > 0 && (last >= available || count > available))
    return corrupt_pickle(
        fmt::format("a tensor of {} elements reaches element {} of a storage of {}", count, last, available));
  if (count == 0) offset = 0;
  tensor->data = storage.data + static_cast<std::uint64_t>(offset) * size;
  tensor->file_offset = storage.file_offset + static_cast<std::uint64_t>(offset) * size;
  return {};
}

}  // namespace eaglet
