#include "store/state_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "store/state_planes.h"
#include "store/state_reference.h"
#include "tensor/float8.h"

namespace eaglet {
namespace {

Status corrupt_states(const std::string& what) {
  return Status(StatusCode::kDataLoss, what);
}

/// Calls `use(token, slot, first number in memory)` for every kept row in stored order: the captured layers
/// token by token, then the last state; undropped documents have all slots of a token side by side.
template <class Use>
void each_row(const StoreHeader& header, const KeptRows& kept, bool dropped, const Use& use) {
  const std::int64_t slots = header.slots(), hidden = header.hidden;
  for (std::int64_t token = 0; token < kept.aux_rows; ++token)
    for (std::int64_t slot = 0; slot < slots - (dropped ? 1 : 0); ++slot)
      use(token, (token * slots + slot) * hidden);
  if (!dropped) return;
  for (const std::int32_t token : kept.last_tokens) use(token, (token * slots + slots - 1) * hidden);
}

std::string encode_raw(const StoreHeader& header, const DocumentStates& document, const KeptRows& kept,
                       bool dropped) {
  std::string payload;
  const auto row_bytes = static_cast<std::size_t>(header.hidden) * sizeof(std::uint16_t);
  each_row(header, kept, dropped, [&](std::int64_t, std::int64_t at) {
    payload.append(reinterpret_cast<const char*>(document.states.data() + at), row_bytes);
  });
  return payload;
}

void decode_raw(const StoreHeader& header, const KeptRows& kept, bool dropped, const std::byte* payload,
                std::int64_t rows, std::uint16_t* out) {
  const auto row_bytes = static_cast<std::size_t>(header.hidden) * sizeof(std::uint16_t);
  each_row(header, kept, dropped, [&](std::int64_t token, std::int64_t at) {
    if (token < rows) std::memcpy(out + at, payload, row_bytes);
    payload += row_bytes;
  });
}

/// A scale [row] as fp32 and then [row] of e4m3: the largest magnitude of a row becomes 448.
std::string encode_fp8(const StoreHeader& header, const DocumentStates& document, const KeptRows& kept,
                       bool dropped) {
  std::string scales, numbers;
  const auto hidden = static_cast<std::size_t>(header.hidden);
  each_row(header, kept, dropped, [&](std::int64_t, std::int64_t at) {
    const std::uint16_t* row = document.states.data() + at;
    std::uint16_t largest = 0;  // magnitudes of bf16 order like their bits
    for (std::size_t i = 0; i < hidden; ++i) largest = std::max<std::uint16_t>(largest, row[i] & 0x7fffu);
    const float scale = std::max(bf16_to_f32(largest) / kLargestF8E4M3, 1e-30f);
    scales.append(reinterpret_cast<const char*>(&scale), sizeof scale);
    for (std::size_t i = 0; i < hidden; ++i)
      numbers += static_cast<char>(f32_to_f8e4m3(bf16_to_f32(row[i]) / scale));
  });
  return scales + numbers;
}

Status decode_fp8(const StoreHeader& header, const KeptRows& kept, bool dropped, const std::byte* payload,
                  std::int64_t rows, std::uint16_t* out) {
  const std::int64_t aux_slots = header.slots() - (dropped ? 1 : 0);
  const std::int64_t count = kept.aux_rows * aux_slots + (dropped ? kept.last_rows() : 0);
  const std::byte* numbers = payload + count * 4;
  const float* table = f8e4m3_table();
  bool bad = false;
  each_row(header, kept, dropped, [&](std::int64_t token, std::int64_t at) {
    float scale = 0;
    std::memcpy(&scale, payload, sizeof scale);
    bad |= !(scale > 0) || !(scale < 1e36f);
    if (token < rows)
      for (std::int64_t i = 0; i < header.hidden; ++i)
        out[at + i] = f32_to_bf16(table[static_cast<std::uint8_t>(numbers[i])] * scale);
    payload += sizeof scale;
    numbers += header.hidden;
  });
  return bad ? corrupt_states("a scale of fp8 states is no positive number") : Status();
}

}  // namespace

KeptRows kept_rows(const std::vector<std::uint8_t>& loss_mask, bool dropped) {
  KeptRows kept;
  kept.tokens = static_cast<std::int64_t>(loss_mask.size());
  if (!dropped) {
    kept.aux_rows = kept.tokens;
    return kept;
  }
  for (std::size_t token = 1; token < loss_mask.size(); ++token)
    if (loss_mask[token] != 0) kept.last_tokens.push_back(static_cast<std::int32_t>(token));
  kept.aux_rows = kept.last_tokens.empty() ? 0 : kept.last_tokens.back();
  return kept;
}

std::uint64_t fixed_payload_bytes(const StoreHeader& header, std::uint8_t encoding, std::int64_t aux_rows,
                                  std::int64_t last_rows) {
  const StateEncoding form = form_of(encoding);
  if (form != StateEncoding::kRaw && form != StateEncoding::kFp8) return 0;
  const bool dropped = (encoding & kDroppedRows) != 0;
  std::uint64_t rows = 0, row_bytes = 0, bytes = 0;
  const auto slots = static_cast<std::uint64_t>(header.slots() - (dropped ? 1 : 0));
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(aux_rows), slots, &rows)) return 0;
  if (dropped) rows += static_cast<std::uint64_t>(last_rows);
  const auto hidden = static_cast<std::uint64_t>(header.hidden);
  row_bytes = form == StateEncoding::kFp8 ? hidden + 4 : hidden * 2;
  return __builtin_mul_overflow(rows, row_bytes, &bytes) ? 0 : bytes;
}

Status check_payload_bytes(const StoreHeader& header, std::uint8_t encoding, std::uint64_t tokens,
                           std::uint64_t bytes) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
  const auto count = static_cast<std::int64_t>(tokens);
  const std::uint8_t raw = static_cast<std::uint8_t>(StateEncoding::kRaw);
  const std::uint64_t unpacked = fixed_payload_bytes(header, raw, count, 0);
  if (unpacked == 0 || unpacked > kLargest) return corrupt_states("states larger than any document's");
  const bool dropped = (encoding & kDroppedRows) != 0;
  bool fits = false;
  switch (form_of(encoding)) {
    case StateEncoding::kRaw:
    case StateEncoding::kFp8: {
      const std::uint64_t whole =
          fixed_payload_bytes(header, encoding & static_cast<std::uint8_t>(~kDroppedRows), count, 0);
      fits = dropped ? bytes <= whole : bytes == whole;
      break;
    }
    case StateEncoding::kPlanes:
      // zstd makes at most 128 KiB of every few bytes: a small record cannot claim any size.
      fits = bytes <= unpacked + plane_table_bytes(header) && unpacked / 40000 <= bytes;
      break;
    case StateEncoding::kElsewhere:
      fits = bytes <= kLargestReferenceBytes && !dropped;
      break;
  }
  return fits ? Status()
              : corrupt_states(
                    fmt::format("{} bytes of states for {} tokens are not possible", bytes, tokens));
}

Result<std::string> encode_states(const StoreHeader& header, std::uint8_t encoding,
                                  const DocumentStates& document, const PrefixBase* base) {
  const bool dropped = (encoding & kDroppedRows) != 0;
  const KeptRows kept = kept_rows(document.loss_mask, dropped);
  switch (form_of(encoding)) {
    case StateEncoding::kRaw:
      return encode_raw(header, document, kept, dropped);
    case StateEncoding::kFp8:
      return encode_fp8(header, document, kept, dropped);
    case StateEncoding::kPlanes:
      return encode_planes(header, document, kept, dropped, base);
    case StateEncoding::kElsewhere:
      if (!document.reference)
        return Status(StatusCode::kInternal, "states elsewhere without saying where", document.id);
      return encode_reference(*document.reference, xxh64(document.states.data(), document.states.size() * 2));
  }
  return Status(StatusCode::kInternal, "no such form of states", document.id);
}

Status decode_states(const StoreHeader& header, std::uint8_t encoding, const std::byte* payload,
                     std::uint64_t bytes, const std::vector<std::uint8_t>& mask, std::int64_t rows,
                     const ReadBase& read_base, std::uint16_t* out) {
  const bool dropped = (encoding & kDroppedRows) != 0;
  const StateEncoding form = form_of(encoding);
  const KeptRows kept = kept_rows(mask, dropped);
  if (dropped) std::fill(out, out + rows * header.slots() * header.hidden, std::uint16_t{0});
  if (form == StateEncoding::kPlanes)
    return decode_planes(header, payload, bytes, kept, dropped, rows, read_base, out);
  if (form == StateEncoding::kElsewhere)
    return decode_reference(header, payload, bytes, static_cast<std::int64_t>(mask.size()), rows, out);
  if (bytes != fixed_payload_bytes(header, encoding, kept.aux_rows, kept.last_rows()))
    return corrupt_states("the states are not as many as the mask asks for");
  if (form == StateEncoding::kFp8) return decode_fp8(header, kept, dropped, payload, rows, out);
  decode_raw(header, kept, dropped, payload, rows, out);
  return {};
}

}  // namespace eaglet
