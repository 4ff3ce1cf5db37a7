#include "formats/conversations.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto row = eaglet::parse_conversation(as_text(data, bytes));
  if (!row.ok()) return 0;
  promise(row->input_ids.size() == row->loss_mask.size() && !row->input_ids.empty());
  const auto again = eaglet::parse_conversation(eaglet::conversation_line(*row));
  promise(again.ok() && again->input_ids == row->input_ids && again->loss_mask == row->loss_mask);
  return 0;
}
