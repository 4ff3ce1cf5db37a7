#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>

namespace eaglet {

std::uint64_t xxh64(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH64(data, bytes, seed);
}

struct Xxh64::State {
  XXH64_state_t* state = XXH64_createState();
  ~State() { XXH64_freeState(state); }
};
Xxh64::Xxh64() : state_(std::make_unique<State>()) {
  XXH64_reset(state_->state, 0);
}
Xxh64::~Xxh64() = default;
void Xxh64::add(const void* data, std::size_t bytes) {
  XXH64_update(state_->state, data, bytes);
}
std::uint64_t Xxh64::value() const {
  return XXH64_digest(state_->state);
}

std::string hex64(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::uint32_t crc32c(const void* data, std::size_t bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1u) ? (c >> 1) ^ 0x82F63B78u : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  std::uint32_t crc = 0xFFFFFFFFu;
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) crc = table[(crc ^ at[i]) & 0xFFu] ^ (crc >> 8);
  return crc ^ 0xFFFFFFFFu;
}

}  // namespace eaglet
