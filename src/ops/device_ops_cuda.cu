#include "device/device_products_cuda.h"
#include "ops/cuda_ops.h"

namespace eaglet {

void use_cuda_ops() {
  static const DeviceOps ops = [] {
    DeviceOps o;
    o.rms_norm = &cuda::rms_norm;
    o.rms_norm_backward = &cuda::rms_norm_backward;
    o.rms_norm_weight_backward = &cuda::rms_norm_weight_backward;
    o.rope_angles = &cuda::rope_angles;
    o.rope_rotate = &cuda::rope_rotate;
    o.rope_rotate_backward = &cuda::rope_rotate_backward;
    o.swiglu = &cuda::swiglu;
    o.swiglu_backward = &cuda::swiglu_backward;
    o.gather_rows = &cuda::gather_rows;
    o.scatter_add_rows = &cuda::scatter_add_rows;
    o.scatter_add_repeated_rows = &cuda::scatter_add_repeated_rows;
    o.zero_rows = &cuda::zero_rows;
    o.add_bias = &cuda::add_bias;
    o.bias_backward = &cuda::bias_backward;
    o.adamw = &cuda::adamw;
    o.l2_norm = &cuda::l2_norm;
    o.attention = &cuda::attention;
    o.attention_backward = &cuda::attention_backward;
    o.newton_schulz = &cuda::newton_schulz;
    o.muon = &cuda::muon;
    o.head_loss = &cuda::head_loss;
    o.best_over_vocab = &cuda::best_over_vocab;
    o.widen_bf16 = &cuda::widen_bf16;
    o.widen_fp8 = &cuda::widen_fp8;
    o.join_planes = &cuda::join_planes;
    return o;
  }();
  set_device_ops(&ops);
  set_device_products(cuda::products_in_bf16());
}

}  // namespace eaglet
