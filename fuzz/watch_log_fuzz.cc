#include "fuzz_input.h"
#include "monitor/log_reader.h"

// A log in one piece and the same log byte by byte: the same facts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string_view text = as_text(data, bytes);
  eaglet::monitor::LogReader whole, pieces;
  whole.feed(text);
  const std::size_t step = bytes > 4096 ? 97 : 1;
  for (std::size_t at = 0; at < text.size(); at += step) pieces.feed(text.substr(at, step));
  const auto a = whole.facts(), b = pieces.facts();
  promise(a.records == b.records && a.bars == b.bars && a.last_step == b.last_step && a.lines == b.lines);
  promise(a.metrics.size() == b.metrics.size() && a.errors.size() == b.errors.size() && a.last_lines == b.last_lines);
  return 0;
}
