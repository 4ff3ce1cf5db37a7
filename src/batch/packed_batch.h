#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/state_rows.h"

namespace eaglet {

/// Several documents end to end after the data shift (docs/math/draft.md): a document of n
/// tokens gives n-1 rows; row p holds token x_{p+1}, captured states g_p, teacher state y_{p+1}, mask
/// m_{p+1}, position p+1 (positions start at 1 in every document).
struct PackedBatch {
  std::int64_t rows = 0;                   // T
  std::vector<std::int32_t> input_ids;     // [T]
  std::vector<std::int32_t> document_ids;  // [T] ordinal of the document in this batch, -1 = padding
  std::vector<std::int32_t> position_ids;  // [T]
  std::vector<std::uint8_t> loss_mask;     // [T]
  std::vector<float> aux_hidden_states;    // [T, num_aux * target_hidden]
  std::vector<float> last_hidden_states;   // [T, target_hidden], before the target's final norm
  bool states_in_store = false;            // the two arrays above are empty: StoreRows reads them
  /// Not kF32: the two arrays above are empty, these have the states as they are stored; StoreRows gives
  /// them.
  StateForm form = StateForm::kF32;
  std::vector<std::byte> stored_aux, stored_last;  // [T, width]
  std::vector<float> aux_scales, last_scales;      // of fp8 [num_aux, T] [T]
  std::vector<std::size_t> documents;              // store index of each document in this batch, in order
  std::int64_t real_tokens = 0;                    // rows that are not padding
};

}  // namespace eaglet
