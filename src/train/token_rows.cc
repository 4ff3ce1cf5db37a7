#include "train/token_rows.h"

#include <algorithm>

namespace eaglet {

DraftInputs TokenRows::inputs() const {
  DraftInputs inputs;
  inputs.rows = static_cast<std::int64_t>(input_ids.size());
  inputs.input_ids = input_ids.data();
  inputs.document_ids = document_ids.data();
  inputs.position_ids = position_ids.data();
  inputs.loss_mask = loss_mask.data();
  return inputs;
}

Status fill_token_rows(const StoreReader& store, const std::vector<std::size_t>& documents,
                       std::int64_t max_seq_len, TokenRows* rows) {
  const auto all = static_cast<std::size_t>(max_seq_len);
  rows->input_ids.assign(all, 0);
  rows->document_ids.assign(all, -1);
  rows->position_ids.assign(all, 0);
  rows->loss_mask.assign(all, 0);
  std::size_t at = 0;
  for (std::size_t ordinal = 0; ordinal < documents.size(); ++ordinal) {
    EAGLET_ASSIGN_OR_RETURN(const DocumentStates document, store.read_tokens(documents[ordinal]));
    const std::size_t tokens = std::min(document.input_ids.size(), all);
    for (std::size_t p = 1; p < tokens && at < all; ++p, ++at) {
      rows->input_ids[at] = document.input_ids[p];
      rows->document_ids[at] = static_cast<std::int32_t>(ordinal);
      rows->position_ids[at] = static_cast<std::int32_t>(p);
      rows->loss_mask[at] = document.loss_mask[p];
    }
  }
  rows->real_tokens = static_cast<std::int64_t>(at);
  return {};
}

}  // namespace eaglet
