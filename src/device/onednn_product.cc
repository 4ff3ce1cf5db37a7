#include "device/onednn_product.h"

namespace eaglet::onednn {

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}
dnnl::stream& stream() {
  thread_local dnnl::stream order(engine());
  return order;
}

Type type_of(ComputeType type) {
  return type == ComputeType::kBf16 ? Type::bf16 : Type::f32;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, Type type, Layout layout) {
  return dnnl::memory::desc({rows, columns}, type, layout);
}
dnnl::memory::desc rows_apart(std::int64_t rows, std::int64_t columns, Type type, std::int64_t distance) {
  return dnnl::memory::desc({rows, columns}, type, dnnl::memory::dims{distance, 1});
}

// oneDNN 3 has no operation descriptors.
dnnl::matmul::primitive_desc product(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                     const dnnl::memory::desc& c, bool accumulate, bool own_scratchpad) {
  dnnl::primitive_attr attributes;
  if (own_scratchpad) attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(engine(), a, b, c, attributes);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine());
#endif
}

}  // namespace eaglet::onednn
