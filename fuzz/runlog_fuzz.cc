#include "fuzz_input.h"
#include "runlog/log_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto record = eaglet::parse_log_line(as_text(data, bytes));
  if (!record.ok()) return 0;
  const std::string line = eaglet::log_line(*record);
  const auto again = eaglet::parse_log_line(line);
  promise(again.ok() && eaglet::log_line(*again) == line);
  return 0;
}
