#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/store.h"

namespace eaglet {

// How a record's states lie in its bytes (docs/formats/store.md, "Forms of states"). In memory they are
// always bf16 [tokens, slots, hidden].

constexpr std::uint8_t kDroppedRows =
    0x80;  // bit of a record's encoding: only rows some drafting step can reach
inline StateEncoding form_of(std::uint8_t encoding) {
  return static_cast<StateEncoding>(encoding & ~kDroppedRows);
}

/// Which tokens of a document have states in its record. All, or with dropped rows: the captured layers up to
/// the token before the last supervised one, the last state at supervised tokens only. A training row p reads
/// the captured layers of token p and the last state of token p + 1, and nothing reads a row behind the last
/// one that counts (docs/math/row_skipping.md).
struct KeptRows {
  std::int64_t tokens = 0, aux_rows = 0;
  std::vector<std::int32_t> last_tokens;  // rising
  std::int64_t last_rows() const { return static_cast<std::int64_t>(last_tokens.size()); }
};
KeptRows kept_rows(const std::vector<std::uint8_t>& loss_mask, bool dropped);

/// Bytes of a raw or fp8 form; nothing for a form whose size depends on the numbers. Overflow: nothing.
std::uint64_t fixed_payload_bytes(const StoreHeader& header, std::uint8_t encoding, std::int64_t aux_rows,
                                  std::int64_t last_rows);
/// kDataLoss unless a record of this encoding can have so many bytes for so many tokens.
Status check_payload_bytes(const StoreHeader& header, std::uint8_t encoding, std::uint64_t tokens,
                           std::uint64_t bytes);

/// The document that later ones of a shard may share a beginning with (its first); as it was stored.
struct PrefixBase {
  std::vector<std::int32_t> ids;
  std::vector<std::uint16_t> states;  // [rows, slots, hidden]
  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
};

/// The payload. `base` may be nullptr; only the planes form uses it.
Result<std::string> encode_states(const StoreHeader& header, std::uint8_t encoding,
                                  const DocumentStates& document, const PrefixBase* base);

/// Gives the first `rows` rows of the shard's first document.
using ReadBase = std::function<Status(std::int64_t rows, std::vector<std::uint16_t>* states)>;

/// The first `rows` tokens' states [rows, slots, hidden] from a payload; tokens without a state become zeros.
/// Nothing in the payload is trusted. `mask` is the whole document's.
Status decode_states(const StoreHeader& header, std::uint8_t encoding, const std::byte* payload,
                     std::uint64_t bytes, const std::vector<std::uint8_t>& mask, std::int64_t rows,
                     const ReadBase& read_base, std::uint16_t* out);

}  // namespace eaglet
