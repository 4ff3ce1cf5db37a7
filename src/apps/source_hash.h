#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace eaglet::apps {

/// SHA-256 (FIPS 180-4). For what a browser asks of a page, a few kilobytes; our own files have XXH64.
std::array<std::uint8_t, 32> sha256(std::string_view text);

/// How a Content-Security-Policy names a script or style that stands in its page: "'sha256-...'", of exactly
/// what is between the tags.
std::string source_hash(std::string_view text);

}  // namespace eaglet::apps
