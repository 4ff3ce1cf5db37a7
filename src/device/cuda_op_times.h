#pragma once

// For .cu files only: how long ops take on the device, by events around them.

#include <cuda_runtime.h>

#include "device/cuda_device.h"
#include "device/op_times.h"

namespace eaglet::cuda {

/// All that is put on the stream between its birth and its end belongs to the group. Within another one it
/// does nothing: the outer group counts. Costs a comparison while nothing is measured, else two events.
class TimedOp {
 public:
  explicit TimedOp(OpGroup group) : TimedOp(group, stream()) {}
  TimedOp(OpGroup group, cudaStream_t on);
  ~TimedOp();
  TimedOp(const TimedOp&) = delete;
  TimedOp& operator=(const TimedOp&) = delete;

 private:
  cudaEvent_t end_ = nullptr;  // nullptr: not measured
  cudaStream_t stream_ = nullptr;
  bool outermost_ = false;
};

/// An op of the same signature that is measured.
template <OpGroup group, auto op>
struct Timed;
template <OpGroup group, class Answer, class... Arguments, Answer (*op)(Arguments...)>
struct Timed<group, op> {
  static Answer call(Arguments... arguments) {
    const TimedOp timed(group);
    return op(arguments...);
  }
};

/// Accelerator::time_ops() and take_op_times().
bool time_ops(bool on);
OpTimes take_op_times();
/// When the device closes: its events are given back.
void forget_op_times();

}  // namespace eaglet::cuda
