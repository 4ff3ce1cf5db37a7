#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace eaglet {

/// The alphabet of byte-level tokenizers: each of the 256 bytes has one printable character, so that any
/// bytes can stand in a vocabulary file as text. Printable Latin-1 stands for itself, the rest in order for
/// U+0100 and up. Source: GPT-2's bytes_to_unicode.
const std::string& byte_character(std::uint8_t byte);
/// The bytes that such a text stands for; nullopt when a character is not of the alphabet.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace eaglet
