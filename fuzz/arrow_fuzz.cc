#include "formats/arrow_rows.h"
#include "formats/conversations.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto lines = eaglet::parse_arrow_stream(reinterpret_cast<const std::byte*>(data), bytes);
  if (!lines.ok()) return 0;
  // What it writes is JSON that the reader of rows understands or refuses.
  for (const std::string& line : *lines) promise(eaglet::parse_json(line).ok());
  return 0;
}
