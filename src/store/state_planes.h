#pragma once

#include <cstdint>
#include <string>

#include "store/state_codec.h"

namespace eaglet {

// The lossless form: the numbers of each slot as two byte planes, the high bytes (sign and most of the
// exponent) packed by zstd, the low ones stored as they are where packing does not help.
//
// Documents of one run begin alike (the system prompt), and states are causal: the rows of a common beginning
// are almost those of the shard's first document. They are stored as differences to it, in planes of their
// own. Measured on SmolLM2-135M, 24 documents: 0.677 of bf16 without, 0.609 with.

/// Of the table in front of the planes.
std::uint64_t plane_table_bytes(const StoreHeader& header);
std::string encode_planes(const StoreHeader& header, const DocumentStates& document, const KeptRows& kept,
                          bool dropped, const PrefixBase* base);
/// kDataLoss; see decode_states().
Status decode_planes(const StoreHeader& header, const std::byte* payload, std::uint64_t bytes,
                     const KeptRows& kept, bool dropped, std::int64_t rows, const ReadBase& read_base,
                     std::uint16_t* out);

}  // namespace eaglet
