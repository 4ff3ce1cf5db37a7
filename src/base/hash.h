#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace eaglet {

/// XXH64 of the bytes with seed 0: our checksum for stores, checkpoints and identities.
std::uint64_t xxh64(const void* data, std::size_t bytes, std::uint64_t seed = 0);
inline std::uint64_t xxh64(std::string_view text) {
  return xxh64(text.data(), text.size());
}
/// 16 lower-case hex digits.
std::string hex64(std::uint64_t value);

/// CRC-32C (Castagnoli, reflected 0x82F63B78, start and final xor 0xFFFFFFFF); crc32c("123456789") =
/// 0xE3069283.
std::uint32_t crc32c(const void* data, std::size_t bytes);

}  // namespace eaglet
