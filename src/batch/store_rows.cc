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
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int32_t ordinal = batch.document_ids[static_cast<std::size_t>(row)];
    if (ordinal < 0 || ordinal < static_cast<std::int32_t>(places_.size())) continue;
    places_.push_back({row, batch.documents[static_cast<std::size_t>(ordinal)], false});
  }
}

Status StoreRows::read_aux(std::int64_t first, std::int64_t n, float* to) {
  return read(first, n, to, nullptr);
}

Status StoreRows::read_last(std::int64_t first, std::int64_t n, float* to) {
  return read(first, n, nullptr, to);
}

// Row p of a document has the captured states of token p and the last state of token p + 1 (fill_batch.cc).
Status StoreRows::read(std::int64_t first, std::int64_t n, float* aux, float* last) {
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
  EAGLET_RETURN_IF_ERROR(store_.read_states_f32(place.document, range, aux, last));
  place.checked = true;
  waited_seconds_ += monotonic_seconds() - begin;
  return {};
}

}  // namespace eaglet
