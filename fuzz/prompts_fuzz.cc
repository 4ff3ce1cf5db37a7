#include "formats/conversations.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto prompt = eaglet::parse_prompt(as_text(data, bytes));
  if (prompt.ok()) promise(!prompt->prompt_ids.empty() || !prompt->messages.empty());
  return 0;
}
