#pragma once

#include "batch/packed_batch.h"
#include "draft/draft_model.h"

namespace eaglet {

/// A batch as the draft reads it: views, valid as long as the batch is unchanged.
/// `rows` gives the states that are not in the batch as fp32.
inline DraftInputs inputs_of(const PackedBatch& batch, StateRows* rows) {
  DraftInputs inputs;
  inputs.rows = batch.rows;
  inputs.input_ids = batch.input_ids.data();
  inputs.document_ids = batch.document_ids.data();
  inputs.position_ids = batch.position_ids.data();
  inputs.loss_mask = batch.loss_mask.data();
  if (batch.states_in_store || batch.form != StateForm::kF32) {
    inputs.states = rows;
    return inputs;
  }
  inputs.aux_hidden_states = batch.aux_hidden_states.data();
  inputs.last_hidden_states = batch.last_hidden_states.data();
  return inputs;
}

}  // namespace eaglet
