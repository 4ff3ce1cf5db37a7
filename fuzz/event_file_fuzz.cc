#include "fuzz_input.h"
#include "runlog/event_reader.h"

// An event file in one piece and cut in two: the same scalars.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string_view text = as_text(data, bytes);
  std::vector<eaglet::ScalarEvent> a, b;
  eaglet::EventReader whole, cut;
  const bool fine = whole.feed(text, &a).ok();
  const bool first = cut.feed(text.substr(0, bytes / 2), &b).ok();
  const bool second = first && cut.feed(text.substr(bytes / 2), &b).ok();
  promise(fine == second && a.size() == b.size() && whole.good_bytes() == cut.good_bytes());
  return 0;
}
