#include "formats/npy.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto values = eaglet::parse_npy_integers(reinterpret_cast<const std::byte*>(data), bytes);
  if (values.ok()) promise(values->size() <= bytes);
  return 0;
}
