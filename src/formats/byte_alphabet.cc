#include "formats/byte_alphabet.h"

#include <array>

namespace eaglet {
namespace {

constexpr std::uint32_t kFirstMoved = 0x100, kLastMoved = 0x143;

struct ByteAlphabet {
  std::array<std::string, 256> characters;
  std::array<std::int16_t, kLastMoved + 1> bytes;  // by code point, -1: none

  ByteAlphabet() {
    bytes.fill(-1);
    std::uint32_t next = kFirstMoved;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const std::uint32_t point = printable ? byte : next++;
      bytes[point] = static_cast<std::int16_t>(byte);
      if (point < 0x80)
        characters[byte] = static_cast<char>(point);
      else
        characters[byte] = {static_cast<char>(0xc0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3f))};
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

const std::string& byte_character(std::uint8_t byte) {
  return byte_alphabet().characters[byte];
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<std::uint8_t>(text[i]);
    std::uint32_t point = lead;
    if (lead >= 0x80) {  // the alphabet ends at U+0143: two bytes at most
      if ((lead & 0xe0) != 0xc0 || i + 1 == text.size()) return std::nullopt;
      point = (lead & 0x1fu) << 6 | (static_cast<std::uint8_t>(text[++i]) & 0x3fu);
    }
    if (point > kLastMoved || byte_alphabet().bytes[point] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_alphabet().bytes[point]);
  }
  return bytes;
}

}  // namespace eaglet
