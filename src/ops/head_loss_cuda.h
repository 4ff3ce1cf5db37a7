#pragma once

#include "ops/head_loss.h"

namespace eaglet::cuda {

/// head_loss() in chunks of so many teacher rows; cuda::head_loss() chooses them.
void head_loss_in_chunks(std::int64_t chunk_teachers, const HeadLossShape& shape,
                         const std::vector<LossTerm>& terms, const HeadLossInputs& in,
                         const HeadLossOutputs& out);

}  // namespace eaglet::cuda
