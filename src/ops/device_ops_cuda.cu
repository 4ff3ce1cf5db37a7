#include "device/cuda_op_times.h"
#include "device/device_products_cuda.h"
#include "ops/cuda_ops.h"

namespace eaglet {

void use_cuda_ops() {
  using cuda::Timed;
  static const DeviceOps ops = [] {  // head_loss and the two that wait measure themselves
    DeviceOps o;
    o.rms_norm = &Timed<OpGroup::kNorms, &cuda::rms_norm>::call;
    o.rms_norm_backward = &Timed<OpGroup::kNorms, &cuda::rms_norm_backward>::call;
    o.rms_norm_weight_backward = &Timed<OpGroup::kNorms, &cuda::rms_norm_weight_backward>::call;
    o.rope_angles = &Timed<OpGroup::kElementwise, &cuda::rope_angles>::call;
    o.rope_rotate = &Timed<OpGroup::kElementwise, &cuda::rope_rotate>::call;
    o.rope_rotate_backward = &Timed<OpGroup::kElementwise, &cuda::rope_rotate_backward>::call;
    o.swiglu = &Timed<OpGroup::kElementwise, &cuda::swiglu>::call;
    o.swiglu_backward = &Timed<OpGroup::kElementwise, &cuda::swiglu_backward>::call;
    o.gather_rows = &Timed<OpGroup::kElementwise, &cuda::gather_rows>::call;
    o.scatter_add_rows = &Timed<OpGroup::kElementwise, &cuda::scatter_add_rows>::call;
    o.scatter_add_repeated_rows = &Timed<OpGroup::kElementwise, &cuda::scatter_add_repeated_rows>::call;
    o.zero_rows = &Timed<OpGroup::kElementwise, &cuda::zero_rows>::call;
    o.add_bias = &Timed<OpGroup::kElementwise, &cuda::add_bias>::call;
    o.bias_backward = &Timed<OpGroup::kElementwise, &cuda::bias_backward>::call;
    o.adamw = &Timed<OpGroup::kOptimizer, &cuda::adamw>::call;
    o.l2_norm = &cuda::l2_norm;
    o.attention = &Timed<OpGroup::kAttention, &cuda::attention>::call;
    o.attention_backward = &Timed<OpGroup::kAttention, &cuda::attention_backward>::call;
    o.newton_schulz = &Timed<OpGroup::kOptimizer, &cuda::newton_schulz>::call;
    o.muon = &Timed<OpGroup::kOptimizer, &cuda::muon>::call;
    o.head_loss = &cuda::head_loss;
    o.best_over_vocab = &cuda::best_over_vocab;
    o.widen_bf16 = &Timed<OpGroup::kElementwise, &cuda::widen_bf16>::call;
    o.widen_fp8 = &Timed<OpGroup::kElementwise, &cuda::widen_fp8>::call;
    o.join_planes = &Timed<OpGroup::kElementwise, &cuda::join_planes>::call;
    return o;
  }();
  set_device_ops(&ops);
  set_device_products(cuda::products_in_bf16());
}

}  // namespace eaglet
