#include <fmt/format.h>

#include <algorithm>

#include "batch/loader.h"

namespace eaglet {
namespace {

void reserve_rows(std::int64_t rows, std::int64_t aux_width, std::int64_t hidden, PackedBatch* batch) {
  const auto n = static_cast<std::size_t>(rows);
  batch->rows = rows;
  batch->input_ids.resize(n);
  batch->document_ids.resize(n);
  batch->position_ids.resize(n);
  batch->loss_mask.resize(n);
  batch->aux_hidden_states.resize(n * static_cast<std::size_t>(aux_width));
  batch->last_hidden_states.resize(n * static_cast<std::size_t>(hidden));
}

void reserve_stored(const StoreHeader& header, PackedBatch* batch) {
  const bool stored = batch->form != StateForm::kF32;
  const auto n = stored ? static_cast<std::size_t>(batch->rows) : 0,
             bytes = static_cast<std::size_t>(header.hidden * bytes_of_number(batch->form)),
             layers = static_cast<std::size_t>(header.slots() - 1),
             scales = batch->form == StateForm::kFp8 ? n : 0;
  batch->stored_aux.resize(n * layers * bytes);
  batch->stored_last.resize(n * bytes);
  batch->aux_scales.resize(scales * layers);
  batch->last_scales.resize(scales);
}

/// Rows from `first` on are padding: document -1, everything else 0.
void pad_from(std::int64_t first, PackedBatch* batch) {
  const auto from = static_cast<std::size_t>(first), rows = static_cast<std::size_t>(batch->rows);
  if (from == rows) return;
  std::fill(batch->input_ids.begin() + first, batch->input_ids.end(), 0);
  std::fill(batch->document_ids.begin() + first, batch->document_ids.end(), -1);
  std::fill(batch->position_ids.begin() + first, batch->position_ids.end(), 0);
  std::fill(batch->loss_mask.begin() + first, batch->loss_mask.end(), 0);
  if (batch->states_in_store || batch->form != StateForm::kF32) return;  // nobody reads states of padding
  const std::size_t aux_width = batch->aux_hidden_states.size() / rows,
                    hidden = batch->last_hidden_states.size() / rows;
  std::fill_n(batch->aux_hidden_states.data() + from * aux_width, (rows - from) * aux_width, 0.0f);
  std::fill_n(batch->last_hidden_states.data() + from * hidden, (rows - from) * hidden, 0.0f);
}

Status read_stored(const StoreReader& store, std::size_t document, const StateRange& range, std::int64_t at,
                   PackedBatch* batch) {
  const std::int64_t row_bytes = store.header().hidden * bytes_of_number(batch->form),
                     layers = store.header().slots() - 1;
  const bool scaled = batch->form == StateForm::kFp8;
  return store.read_states_stored(document, range,
                                  {batch->stored_aux.data() + at * layers * row_bytes,
                                   scaled ? batch->aux_scales.data() + at : nullptr, batch->rows},
                                  {batch->stored_last.data() + at * row_bytes,
                                   scaled ? batch->last_scales.data() + at : nullptr, batch->rows});
}

/// The data shift: row p holds token p+1, its mask and its last state beside the captured states of token p.
///   tokens      x0 x1 x2 x3          row          0   1   2
///   aux         g0 g1 g2 g3    ->    token        x1  x2  x3
///   last        y0 y1 y2 y3          aux          g0  g1  g2
///                                    last         y1  y2  y3      position 1 2 3
Status add_document(const StoreReader& store, std::size_t document, std::int64_t rows, std::int64_t at,
                    PackedBatch* batch) {
  EAGLET_ASSIGN_OR_RETURN(const DocumentStates tokens, store.read_tokens(document));
  const auto ordinal = static_cast<std::int32_t>(batch->documents.size());
  std::copy_n(tokens.input_ids.begin() + 1, rows, batch->input_ids.begin() + at);
  std::copy_n(tokens.loss_mask.begin() + 1, rows, batch->loss_mask.begin() + at);
  for (std::int64_t p = 0; p < rows; ++p) {
    batch->document_ids[static_cast<std::size_t>(at + p)] = ordinal;
    batch->position_ids[static_cast<std::size_t>(at + p)] = static_cast<std::int32_t>(p + 1);
  }
  batch->documents.push_back(document);
  if (batch->states_in_store) return {};
  const std::int64_t hidden = store.header().hidden, aux_width = hidden * (store.header().slots() - 1);
  StateRange range{0, 1, rows};
  range.release = true;  // the system keeps the pages; the run's own memory is what is planned
  if (batch->form != StateForm::kF32) return read_stored(store, document, range, at, batch);
  EAGLET_RETURN_IF_ERROR(store.read_states_f32(document, range,
                                               batch->aux_hidden_states.data() + at * aux_width,
                                               batch->last_hidden_states.data() + at * hidden));
  return {};
}

}  // namespace

Status fill_batch(const StoreReader& store, const std::vector<std::size_t>& documents, std::int64_t max_rows,
                  PackedBatch* batch, BatchStates states) {
  std::vector<std::int64_t> rows;
  std::int64_t all_rows = 0;
  for (const std::size_t document : documents) {
    if (document >= store.documents().size())
      return Status(StatusCode::kInvalidArgument, fmt::format("there is no document {}: the store has {}",
                                                              document, store.documents().size()));
    const std::int64_t tokens = store.documents()[document].tokens;
    rows.push_back((max_rows > 0 ? std::min(tokens, max_rows) : tokens) - 1);
    all_rows += rows.back();
  }
  if (max_rows > 0 && all_rows > max_rows)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("documents of {} rows do not fit into {}", all_rows, max_rows));
  batch->states_in_store = states == BatchStates::kInStore;
  batch->form = states == BatchStates::kStored ? store.stored_form() : StateForm::kF32;
  const std::int64_t hidden =
      batch->states_in_store || batch->form != StateForm::kF32 ? 0 : store.header().hidden;
  reserve_rows(max_rows > 0 ? max_rows : all_rows, hidden * (store.header().slots() - 1), hidden, batch);
  reserve_stored(store.header(), batch);
  batch->documents.clear();
  batch->real_tokens = all_rows;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    EAGLET_RETURN_IF_ERROR(add_document(store, documents[i], rows[i], at, batch));
    at += rows[i];
  }
  pad_from(at, batch);
  return {};
}

}  // namespace eaglet
