#include "train/state_noise.h"

#include "base/rng.h"
#include "device/threads.h"

namespace eaglet {

std::uint64_t seed_of_batch(std::uint64_t seed, std::int64_t epoch, std::int64_t batch_number) {
  return Rng(seed, (static_cast<std::uint64_t>(epoch) << 32) + static_cast<std::uint64_t>(batch_number))
      .next();
}

void add_state_noise(double amplitude, std::uint64_t batch_seed, PackedBatch* batch) {
  if (amplitude == 0 || batch->rows == 0) return;
  const std::size_t width = batch->aux_hidden_states.size() / static_cast<std::size_t>(batch->rows);
  parallel_for(batch->rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (batch->document_ids[static_cast<std::size_t>(row)] < 0) continue;
      Rng rng(batch_seed, static_cast<std::uint64_t>(row));
      float* states = batch->aux_hidden_states.data() + static_cast<std::size_t>(row) * width;
      for (std::size_t i = 0; i < width; ++i)
        states[i] += static_cast<float>(amplitude * (2 * rng.uniform() - 1));
    }
  });
}

}  // namespace eaglet
