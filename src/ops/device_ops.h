#pragma once

#include "device/place.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/bias.h"
#include "ops/head_loss.h"
#include "ops/muon.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/stored_states.h"
#include "ops/swiglu.h"

namespace eaglet {

/// The ops of a device, each with its contract header's signature; arrays lie in the device's memory, index
/// arrays too. They return at once and run in order; Accelerator::wait() tells failures. Scratch arguments
/// may be nullptr: a device has its own.
struct DeviceOps {
  decltype(&eaglet::rms_norm) rms_norm = nullptr;
  decltype(&eaglet::rms_norm_backward) rms_norm_backward = nullptr;
  decltype(&eaglet::rms_norm_weight_backward) rms_norm_weight_backward = nullptr;
  decltype(&eaglet::rope_angles) rope_angles = nullptr;
  decltype(&eaglet::rope_rotate) rope_rotate = nullptr;
  decltype(&eaglet::rope_rotate_backward) rope_rotate_backward = nullptr;
  decltype(&eaglet::swiglu) swiglu = nullptr;
  decltype(&eaglet::swiglu_backward) swiglu_backward = nullptr;
  decltype(&eaglet::gather_rows) gather_rows = nullptr;
  decltype(&eaglet::scatter_add_rows) scatter_add_rows = nullptr;
  decltype(&eaglet::scatter_add_repeated_rows) scatter_add_repeated_rows = nullptr;
  decltype(&eaglet::zero_rows) zero_rows = nullptr;
  decltype(&eaglet::add_bias) add_bias = nullptr;
  decltype(&eaglet::bias_backward) bias_backward = nullptr;
  decltype(&eaglet::adamw) adamw = nullptr;
  decltype(&eaglet::l2_norm) l2_norm = nullptr;
  decltype(&eaglet::attention) attention = nullptr;
  decltype(&eaglet::attention_backward) attention_backward = nullptr;
  decltype(&eaglet::newton_schulz) newton_schulz = nullptr;
  decltype(&eaglet::muon) muon = nullptr;
  decltype(&eaglet::head_loss) head_loss = nullptr;
  decltype(&eaglet::best_over_vocab) best_over_vocab = nullptr;
  decltype(&eaglet::widen_bf16) widen_bf16 = nullptr;
  decltype(&eaglet::widen_fp8) widen_fp8 = nullptr;
  decltype(&eaglet::join_planes) join_planes = nullptr;
};

/// Ops of the open device; set once by the backend, before its memory is used.
void set_device_ops(const DeviceOps* ops);
const DeviceOps* open_device_ops();

/// The ops to use for a result at this address: those of the device it lies on, or nullptr for the host.
inline const DeviceOps* device_ops(const void* address) {
  return on_device(address) ? open_device_ops() : nullptr;
}

/// Hands out the CUDA ops. Only in programs built with EAGLET_CUDA.
void use_cuda_ops();

}  // namespace eaglet
