#include "fuzz_input.h"
#include "monitor/verdict_text.h"
#include "monitor/verdict_wire.h"

// What another machine sends: taken in, drawn, and sent on again it stays what it is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace eaglet::monitor;
  const auto json = eaglet::parse_json(as_text(data, bytes));
  if (!json.ok()) return 0;
  Verdict verdict, again;
  if (!verdict_from_wire(*json, &verdict).ok()) return 0;
  promise(!verdict_text(verdict, [](const std::string& text, Level) { return text; }, true).empty());
  std::map<std::string, std::int64_t> sent;
  promise(verdict_from_wire(verdict_to_wire(verdict, &sent), &again).ok());
  promise(verdict_json(verdict) == verdict_json(again));
  return 0;
}
