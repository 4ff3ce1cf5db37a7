#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<std::uint8_t>(text[at]) : 0;
}

/// Bytes of the character at `at`, or minus the bytes of a beginning that no character has.
int measure(std::string_view text, std::size_t at) {
  const std::uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return -1;
  const int bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte has a narrower range behind four leads: no overlong forms, no surrogates, no point above
  // U+10FFFF.
  std::uint8_t least = 0x80, most = 0xbf;
  if (lead == 0xe0) least = 0xa0;
  if (lead == 0xed) most = 0x9f;
  if (lead == 0xf0) least = 0x90;
  if (lead == 0xf4) most = 0x8f;
  for (int i = 1; i < bytes; ++i) {
    const std::uint8_t next = byte_at(text, at + static_cast<std::size_t>(i));
    if (next < least || next > most) return -i;
    least = 0x80;
    most = 0xbf;
  }
  return bytes;
}

}  // namespace

Utf8Character utf8_at(std::string_view text, std::size_t at) {
  const std::uint32_t lead = byte_at(text, at);
  const auto next = [&](std::size_t i) { return byte_at(text, at + i) & 0x3fu; };
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | next(1), 2};
  if (lead < 0xf0) return {(lead & 0xf) << 12 | next(1) << 6 | next(2), 3};
  return {(lead & 7) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4};
}

Utf8Character utf8_last(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (byte_at(text, at) & 0xc0) == 0x80) --at;
  return utf8_at(text, at);
}

void append_utf8(std::uint32_t point, std::string* text) {
  const auto put = [text](std::uint32_t byte) { *text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
    return;
  }
  if (point < 0x800) {
    put(0xc0 | point >> 6);
  } else {
    if (point < 0x10000) {
      put(0xe0 | point >> 12);
    } else {
      put(0xf0 | point >> 18);
      put(0x80 | (point >> 12 & 0x3f));
    }
    put(0x80 | (point >> 6 & 0x3f));
  }
  put(0x80 | (point & 0x3f));
}

bool is_utf8(std::string_view text, std::string* mended) {
  std::size_t at = 0;
  for (int bytes; at < text.size() && (bytes = measure(text, at)) > 0;) at += static_cast<std::size_t>(bytes);
  if (at == text.size()) return true;
  mended->assign(text.substr(0, at));
  while (at < text.size()) {
    const int bytes = measure(text, at);
    const auto taken = static_cast<std::size_t>(bytes > 0 ? bytes : -bytes);
    if (bytes > 0)
      mended->append(text.substr(at, taken));
    else
      append_utf8(0xfffd, mended);
    at += taken;
  }
  return false;
}

}  // namespace eaglet
