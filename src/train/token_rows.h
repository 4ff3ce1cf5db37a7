#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "draft/draft_model.h"
#include "store/store.h"

namespace eaglet {

/// The rows of a packed batch without its states: all that plans of work and memory need. The same arrays
/// that fill_batch() makes, padding included.
struct TokenRows {
  std::vector<std::int32_t> input_ids, document_ids, position_ids;  // [T]
  std::vector<std::uint8_t> loss_mask;                              // [T]
  std::int64_t real_tokens = 0;
  /// Views, valid as long as this is unchanged.
  DraftInputs inputs() const;
};

/// `documents` in order, each cut to max_seq_len tokens, padded to max_seq_len rows. Reads no state.
Status fill_token_rows(const StoreReader& store, const std::vector<std::size_t>& documents,
                       std::int64_t max_seq_len, TokenRows* rows);

}  // namespace eaglet
