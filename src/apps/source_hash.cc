#include "apps/source_hash.h"

#include <bit>
#include <cmath>

namespace eaglet::apps {
namespace {

using Words = std::array<std::uint32_t, 8>;
constexpr std::size_t kBlock = 64, kRounds = 64;

/// The first 32 bits of the fractional parts of square or cube roots of primes, which is what the standard's
/// constants are.
template <std::size_t count, typename Root>
std::array<std::uint32_t, count> fractions_of_primes(Root root) {
  std::array<std::uint32_t, count> out;
  std::size_t found = 0;
  for (int n = 2; found < count; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    const long double value = root(static_cast<long double>(n));
    out[found++] = static_cast<std::uint32_t>((value - std::floor(value)) * 4294967296.0L);
  }
  return out;
}

void add_block(const std::uint8_t* block, Words* state) {
  static const auto kConstants = fractions_of_primes<kRounds>([](long double n) { return std::cbrt(n); });
  std::array<std::uint32_t, kRounds> w;
  for (std::size_t i = 0; i < 16; ++i)
    w[i] = static_cast<std::uint32_t>(block[4 * i]) << 24 |
           static_cast<std::uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<std::uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  for (std::size_t i = 16; i < kRounds; ++i) {
    const std::uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = *state;
  for (std::size_t i = 0; i < kRounds; ++i) {
    const std::uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                              ((e & f) ^ (~e & g)) + kConstants[i] + w[i];
    const std::uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const Words mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < mixed.size(); ++i) (*state)[i] += mixed[i];
}

std::string base64(const std::uint8_t* bytes, std::size_t size) {
  constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < size; i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < size ? bytes[i + k] : 0);
    for (std::size_t k = 0; k < 4; ++k) out += i + k <= size ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace

std::array<std::uint8_t, 32> sha256(std::string_view text) {
  static const auto kBegin = fractions_of_primes<8>([](long double n) { return std::sqrt(n); });
  Words state = kBegin;
  std::string padded(text);
  padded += '\x80';
  while (padded.size() % kBlock != kBlock - 8) padded += '\0';
  const std::uint64_t bits = 8 * static_cast<std::uint64_t>(text.size());
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift & 0xff);
  for (std::size_t at = 0; at < padded.size(); at += kBlock)
    add_block(reinterpret_cast<const std::uint8_t*>(padded.data()) + at, &state);
  std::array<std::uint8_t, 32> out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string source_hash(std::string_view text) {
  const auto hash = sha256(text);
  return "'sha256-" + base64(hash.data(), hash.size()) + "'";
}

}  // namespace eaglet::apps
