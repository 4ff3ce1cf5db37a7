#pragma once

#include <cstdint>

#include "base/status.h"
#include "comm/device_ranks.h"
#include "device/accelerator.h"
#include "train/gradient_reducer.h"

namespace eaglet {

/// In the memory of devices: a bucket's sum is asked for as soon as backward's ops before it are, and runs on
/// the ranks' stream behind them, beside the ops that follow.
class DeviceReducer : public GradientReducer {
 public:
  DeviceReducer(DeviceRanks& ranks, Accelerator& device, float* gradients, std::int64_t elements,
                std::int64_t bucket_elements = 1 << 22)
      : ranks_(ranks),
        device_(device),
        gradients_(gradients),
        elements_(elements),
        bucket_(bucket_elements),
        first_asked_(elements) {}

  ~DeviceReducer() override;

  void begin() override;
  void ready(std::int64_t first_final) override;
  Status finish() override;
  double waited_seconds() const override { return waited_seconds_; }

 private:
  DeviceRanks& ranks_;
  Accelerator& device_;
  float* const gradients_;
  const std::int64_t elements_, bucket_;
  std::int64_t first_asked_;  // falling
  bool active_ = false;       // sums may be under way
  Status status_;
  double waited_seconds_ = 0;
};

}  // namespace eaglet
