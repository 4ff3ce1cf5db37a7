#pragma once

// For .cu files only: the CUDA versions of the ops, with the signatures of the contract headers.

#include "ops/device_ops.h"

namespace eaglet::cuda {

decltype(eaglet::rms_norm) rms_norm;
decltype(eaglet::rms_norm_backward) rms_norm_backward;
decltype(eaglet::rms_norm_weight_backward) rms_norm_weight_backward;
decltype(eaglet::rope_angles) rope_angles;
decltype(eaglet::rope_rotate) rope_rotate;
decltype(eaglet::rope_rotate_backward) rope_rotate_backward;
decltype(eaglet::swiglu) swiglu;
decltype(eaglet::swiglu_backward) swiglu_backward;
decltype(eaglet::gather_rows) gather_rows;
decltype(eaglet::scatter_add_rows) scatter_add_rows;
decltype(eaglet::scatter_add_repeated_rows) scatter_add_repeated_rows;
decltype(eaglet::zero_rows) zero_rows;
decltype(eaglet::add_bias) add_bias;
decltype(eaglet::bias_backward) bias_backward;
decltype(eaglet::adamw) adamw;
decltype(eaglet::l2_norm) l2_norm;
decltype(eaglet::attention) attention;
decltype(eaglet::attention_backward) attention_backward;
decltype(eaglet::newton_schulz) newton_schulz;
decltype(eaglet::muon) muon;
decltype(eaglet::head_loss) head_loss;
decltype(eaglet::best_over_vocab) best_over_vocab;
decltype(eaglet::widen_bf16) widen_bf16;
decltype(eaglet::widen_fp8) widen_fp8;
decltype(eaglet::join_planes) join_planes;

}  // namespace eaglet::cuda
