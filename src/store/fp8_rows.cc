#include "store/fp8_rows.h"

#include <algorithm>
#include <cstring>

namespace eaglet {

Result<Fp8Rows> Fp8Rows::open(const StoreHeader& header, std::uint8_t encoding, const std::byte* payload,
                              std::uint64_t bytes, const std::vector<std::uint8_t>& mask) {
  Fp8Rows rows;
  rows.slots_ = header.slots();
  rows.hidden_ = header.hidden;
  rows.dropped_ = (encoding & kDroppedRows) != 0;
  rows.kept_ = kept_rows(mask, rows.dropped_);
  rows.payload_ = payload;
  rows.count_ = rows.kept_.aux_rows * (rows.slots_ - (rows.dropped_ ? 1 : 0)) +
                (rows.dropped_ ? rows.kept_.last_rows() : 0);
  if (form_of(encoding) != StateEncoding::kFp8 ||
      bytes != fixed_payload_bytes(header, encoding, rows.kept_.aux_rows, rows.kept_.last_rows()))
    return Status(StatusCode::kDataLoss, "the states are not as many as the mask asks for");
  return rows;
}

std::int64_t Fp8Rows::number_of(std::int64_t token, std::int64_t slot) const {
  if (!dropped_) return token * slots_ + slot;
  if (slot + 1 < slots_) return token < kept_.aux_rows ? token * (slots_ - 1) + slot : -1;
  const auto& kept = kept_.last_tokens;
  const auto at = std::lower_bound(kept.begin(), kept.end(), token);
  if (at == kept.end() || *at != token) return -1;
  return kept_.aux_rows * (slots_ - 1) + (at - kept.begin());
}

Result<Fp8Rows::Row> Fp8Rows::row(std::int64_t token, std::int64_t slot) const {
  Row row;
  const std::int64_t number = number_of(token, slot);
  if (number < 0) return row;
  std::memcpy(&row.scale, payload_ + number * 4, sizeof row.scale);
  if (!(row.scale > 0) || !(row.scale < 1e36f))
    return Status(StatusCode::kDataLoss, "a scale of fp8 states is no positive number");
  row.numbers = payload_ + count_ * 4 + number * hidden_;
  return row;
}

}  // namespace eaglet
