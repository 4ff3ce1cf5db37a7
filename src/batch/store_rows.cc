#include "batch/store_rows.h"

#include <algorithm>

#include "base/clock.h"

namespace eaglet {

bool states_stay_in_store(const StoreHeader& header, std::int64_t max_rows) {
  constexpr std::int64_t kMostBytes = std::int64_t{512} << 20;
  return 4 * max_rows * header.slots() * header.hidden > kMostBytes;
}

void StoreRows::use(const PackedBatch& batch) {
  places_.clear();
  stored_ = batch.form != StateForm::kF32 ? &batch : nullptr;
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int32_t ordinal = batch.document_ids[static_cast<std::size_t>(row)];
    if (ordinal < 0 || ordinal < static_cast<std::int32_t>(places_.size())) continue;
    places_.push_back({row, batch.documents[static_cast<std::size_t>(ordinal)], false});
  }
}

// Row p of a document has the captured states of token p and the last state of token p + 1 (fill_batch.cc).
template <class Use>
Status StoreRows::read(std::int64_t first, std::int64_t n, const Use& use) {
  const double begin = monotonic_seconds();
  const auto after = std::upper_bound(places_.begin(), places_.end(), first,
                                      [](std::int64_t row, const Place& place) { return row < place.begin; });
  if (after == places_.begin())
    return Status(StatusCode::kInternal, "states of a row that belongs to no document were asked for");
  Place& place = *(after - 1);
  StateRange range;
  range.aux_first = first - place.begin;
  range.last_first = range.aux_first + 1;
  range.count = n;
  range.checked = place.checked;
  range.release = true;
  EAGLET_RETURN_IF_ERROR(use(place.document, range));
  place.checked = true;
  waited_seconds_ += monotonic_seconds() - begin;
  return {};
}

Status StoreRows::read_aux(std::int64_t first, std::int64_t n, float* to) {
  return read(first, n, [&](std::size_t document, const StateRange& range) {
    return store_.read_states_f32(document, range, to, nullptr);
  });
}

Status StoreRows::read_last(std::int64_t first, std::int64_t n, float* to) {
  return read(first, n, [&](std::size_t document, const StateRange& range) {
    return store_.read_states_f32(document, range, nullptr, to);
  });
}

StateForm StoreRows::form() const {
  return stored_ != nullptr ? stored_->form : store_.stored_form();
}

Status StoreRows::read_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) {
  if (stored_ != nullptr) {
    copy_stored(captured, first, n, to);
    return {};
  }
  return read(first, n, [&](std::size_t document, const StateRange& range) {
    return store_.read_states_stored(document, range, captured ? to : StoredRowsTo(),
                                     captured ? StoredRowsTo() : to);
  });
}

void StoreRows::copy_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) const {
  const std::int64_t layers = captured ? store_.header().slots() - 1 : 1,
                     row_bytes = layers * store_.header().hidden * bytes_of_number(stored_->form);
  const std::vector<std::byte>& from = captured ? stored_->stored_aux : stored_->stored_last;
  std::copy_n(from.data() + first * row_bytes, n * row_bytes, static_cast<std::byte*>(to.numbers));
  if (stored_->form != StateForm::kFp8) return;
  const std::vector<float>& scales = captured ? stored_->aux_scales : stored_->last_scales;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    std::copy_n(scales.data() + layer * stored_->rows + first, n, to.scales + layer * to.scales_ld);
}

}  // namespace eaglet
