#pragma once

#include <cstdint>
#include <memory>

#include "draft/draft_config.h"
#include "draft/draft_model.h"

namespace eaglet {

/// Bytes of activations and scratch that DraftModel::step() touches for the rows of a batch (no state is
/// looked at), told from the configuration alone: no weight exists. The same layout that step() uses.
class MemoryForecast {
 public:
  /// `on_device`: as with a device, whose ops have scratch of their own.
  MemoryForecast(const DraftConfig& config, const TttOptions& options, bool with_gradients, int threads,
                 bool on_device = false);
  ~MemoryForecast();
  std::uint64_t activation_bytes(const DraftInputs& rows);
  /// Bytes of the copies of weights and of the teacher's head that are made ready for products, and of the
  /// memory that those products share.
  std::uint64_t packed_bytes(bool train_head) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace eaglet
