#include "formats/safetensors.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  std::map<std::string, std::string> metadata;
  std::uint64_t start = 0;
  const auto entries = eaglet::SafetensorsFile::parse_header(reinterpret_cast<const std::byte*>(data), bytes,
                                                             &metadata, &start);
  if (!entries.ok()) return 0;
  for (const auto& entry : *entries) promise(entry.offset + entry.bytes <= bytes - start);
  return 0;
}
