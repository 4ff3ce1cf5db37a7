#include "formats/gguf_file.h"
#include "formats/target_model.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const MemoryFile file(data, bytes);
  const auto gguf = eaglet::GgufFile::open(file.path());
  if (!gguf.ok()) return 0;
  (void)gguf->described_keys();
  for (const auto& tensor : gguf->tensors()) promise(tensor.bytes <= bytes);
  (void)eaglet::read_target_facts(file.path());
  return 0;
}
