#include "export/weights_file.h"

#include "formats/safetensors.h"

namespace eaglet {
namespace {

Dtype stored_dtype(WeightDtype dtype) {
  switch (dtype) {
    case WeightDtype::kF32:
      return Dtype::kF32;
    case WeightDtype::kBF16:
      return Dtype::kBF16;
    case WeightDtype::kF16:
      break;
  }
  return Dtype::kF16;
}

std::vector<std::uint16_t> narrow(const NamedWeight& weight, Dtype dtype) {
  std::int64_t count = 1;
  for (const std::int64_t size : weight.shape) count *= size;
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bits.size(); ++i)
    bits[i] = dtype == Dtype::kBF16 ? f32_to_bf16(weight.values[i]) : f32_to_f16(weight.values[i]);
  return bits;
}

}  // namespace

Status write_weights(const std::string& path, const std::vector<NamedWeight>& weights,
                     const DraftVocab& vocab, WeightDtype dtype) {
  const Dtype stored = stored_dtype(dtype);
  std::vector<TensorView> tensors;
  std::vector<std::vector<std::uint16_t>> narrowed;
  narrowed.reserve(weights.size());  // the views point into its elements
  for (const NamedWeight& weight : weights) {
    const void* data = weight.values;
    if (stored != Dtype::kF32) {
      narrowed.push_back(narrow(weight, stored));
      data = narrowed.back().data();
    }
    tensors.push_back({weight.name, stored, weight.shape, data});
  }
  const std::vector<std::int64_t> d2t = vocab.d2t_offsets();
  const std::vector<std::uint8_t> t2d = vocab.t2d_flags();
  if (!vocab.is_full()) {
    tensors.push_back({"d2t", Dtype::kI64, {vocab.size()}, d2t.data()});
    tensors.push_back({"t2d", Dtype::kBool, {vocab.target_vocab}, t2d.data()});
  }
  return write_safetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace eaglet
