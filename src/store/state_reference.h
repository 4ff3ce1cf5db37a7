#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "store/store.h"

namespace eaglet {

// The form of states that stay in another tool's file: the record says which file, where each slot lies, and
// the checksum of the numbers as bf16.

constexpr std::uint64_t kLargestReferenceBytes = 1 << 18;

std::string encode_reference(const StateReference& reference, std::uint64_t content_checksum);
/// kDataLoss when damaged.
Result<StateReference> parse_reference(const StoreHeader& header, const std::byte* payload,
                                       std::uint64_t bytes, std::uint64_t* content_checksum);
/// The first `rows` of the document's `tokens` rows. kNotFound when the file is gone; kDataLoss when it has
/// another size or other numbers than when it was taken in (checked when all rows are read).
Status decode_reference(const StoreHeader& header, const std::byte* payload, std::uint64_t bytes,
                        std::int64_t tokens, std::int64_t rows, std::uint16_t* out);

}  // namespace eaglet
