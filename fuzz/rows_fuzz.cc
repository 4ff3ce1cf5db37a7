#include "formats/row_source.h"
#include "fuzz_input.h"

// Lines and lists of rows, plain and packed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const MemoryFile file(data, bytes);
  const auto rows = eaglet::RowSource::open(file.path());
  if (!rows.ok()) return 0;
  eaglet::RowText row;
  for (std::uint64_t number = 1; number < 100000; ++number) {
    const auto there = (*rows)->next(&row);
    if (!there.ok() || !*there) return 0;
    promise(row.number == number);
  }
  return 0;
}
