#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace eaglet {

/// One character and the bytes it takes.
struct Utf8Character {
  std::uint32_t point = 0;
  std::size_t bytes = 0;
};
/// The character at `at`, which lies inside `text`. `text` is valid UTF-8.
Utf8Character utf8_at(std::string_view text, std::size_t at);
/// The last character of a text that is not empty.
Utf8Character utf8_last(std::string_view text);
void append_utf8(std::uint32_t point, std::string* text);

/// True when `text` is UTF-8; else `mended` is the same text with U+FFFD for what is none: one for each
/// longest beginning of a character (Unicode 3.9, "maximal subparts", as Python's errors="replace").
bool is_utf8(std::string_view text, std::string* mended);

}  // namespace eaglet
