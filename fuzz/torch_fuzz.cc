#include <vector>

#include "formats/torch_file.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const auto file = eaglet::TorchFile::parse(std::vector<std::byte>(begin, begin + bytes), "fuzz");
  if (!file.ok()) return 0;
  const auto look = [&](const eaglet::TorchValue& value) {
    if (value.kind != eaglet::TorchValue::Kind::kTensor) return;
    promise(value.tensor.elements() <= static_cast<std::int64_t>(bytes));
    (void)eaglet::TorchFile::read_f32(value.tensor);
    (void)eaglet::TorchFile::read_i64(value.tensor);
  };
  look(file->root());
  for (const auto* item : file->root().items) look(*item);
  for (const auto* value : file->root().values) look(*value);
  return 0;
}
