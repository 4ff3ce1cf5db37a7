#pragma once

#include <string>
#include <vector>

#include "batch/packed_batch.h"
#include "draft/draft_model.h"
#include "store/store.h"

namespace eaglet {

/// Names documents for a message: the first ones, and how many more.
std::string document_names(const StoreReader& store, const std::vector<std::size_t>& documents);

/// The documents of a batch whose states are not finite; empty when all are.
std::vector<std::size_t> documents_not_finite(const PackedBatch& batch);

/// "weights of fc.weight, norm.weight; gradients of ..." for tensors with values that are not finite;
/// `gradients` may be nullptr when none were made. "" when all is finite.
std::string tensors_not_finite(const DraftWeights& weights, const float* gradients);

}  // namespace eaglet
