#include "tokenizer/unicode.h"

#include <algorithm>
#include <iterator>

#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

struct CodePointRange {
  std::uint32_t first, last;
};
struct StandInRange {
  std::uint32_t first, last, stand_in;
};

#include "tokenizer/unicode_tables.inc"

template <class Range, std::size_t n>
const Range* range_of(const Range (&table)[n], std::uint32_t point) {
  const Range* found = std::upper_bound(std::begin(table), std::end(table), point,
                                        [](std::uint32_t p, const Range& range) { return p < range.first; });
  return found != std::begin(table) && point <= found[-1].last ? found - 1 : nullptr;
}

}  // namespace

std::string text_for_patterns(std::string_view text) {
  std::string replaced;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<std::uint8_t>(text[at]) < 0xe0) {  // the first such character has three bytes
      ++at;
      continue;
    }
    const Utf8Character one = utf8_at(text, at);
    if (const StandInRange* range = range_of(kNewer, one.point)) {
      if (replaced.empty()) replaced = text;
      std::string other;
      append_utf8(range->stand_in, &other);
      replaced.replace(at, one.bytes, other);
    }
    at += one.bytes;
  }
  return replaced;
}

bool is_numeric(std::uint32_t point) {
  if (point < 0x80) return point >= '0' && point <= '9';
  return range_of(kNumeric, point) != nullptr;
}

bool is_white_space(std::uint32_t point) {
  return (point >= 9 && point <= 13) || point == ' ' || point == 0x85 || point == 0xa0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 || point == 0x202f ||
         point == 0x205f || point == 0x3000;
}

bool is_plain_in_normalisation(std::uint32_t point) {
  return range_of(kPlain, point) != nullptr;
}

}  // namespace eaglet
