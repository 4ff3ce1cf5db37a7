#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace eaglet {

/// XXH64 of the bytes with seed 0: our checksum for stores, checkpoints and identities.
std::uint64_t xxh64(const void* data, std::size_t bytes, std::uint64_t seed = 0);
inline std::uint64_t xxh64(std::string_view text) {
  return xxh64(text.data(), text.size());
}
/// The same, taken in piece by piece.
class Xxh64 {
 public:
  Xxh64();
  ~Xxh64();
  Xxh64(const Xxh64&) = delete;
  Xxh64& operator=(const Xxh64&) = delete;
  void add(const void* data, std::size_t bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
/// 16 lower-case hex digits.
std::string hex64(std::uint64_t value);

/// CRC-32C (Castagnoli, reflected 0x82F63B78, start and final xor 0xFFFFFFFF); crc32c("123456789") =
/// 0xE3069283.
std::uint32_t crc32c(const void* data, std::size_t bytes);

}  // namespace eaglet
