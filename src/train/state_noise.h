#pragma once

#include <cstdint>

#include "batch/packed_batch.h"

namespace eaglet {

/// What is random about a batch: a pure function of the run's seed, the epoch and the batch's number in it,
/// so the same on any rank and after a resume.
std::uint64_t seed_of_batch(std::uint64_t seed, std::int64_t epoch, std::int64_t batch_number);

/// Adds uniform noise in [-amplitude, amplitude) to every captured state of the batch's documents, so that
/// the draft does not lean on their last digits (EAGLE trains so). The teacher's states stay as they are. A
/// pure function of the batch's seed: the same for any thread count.
void add_state_noise(double amplitude, std::uint64_t batch_seed, PackedBatch* batch);

}  // namespace eaglet
