#include "base/files.h"
#include "draft/draft_weights.h"
#include "formats/safetensors.h"

namespace eaglet {

Status write_draft(const std::string& directory, const DraftWeights& draft) {
  std::vector<TensorView> tensors;
  if (!draft.embed_tokens.empty()) {
    tensors.push_back({"embed_tokens.weight",
                       Dtype::kF32,
                       {draft.config.vocab, draft.config.hidden},
                       draft.embed_tokens.data()});
  }
  for (const ParameterInfo& info : draft.table) {
    tensors.push_back({info.name, Dtype::kF32, info.shape, draft.values.data() + info.offset});
  }
  const std::vector<std::int64_t> d2t = draft.vocab.d2t_offsets();
  const std::vector<std::uint8_t> t2d = draft.vocab.t2d_flags();
  if (!draft.vocab.is_full()) {
    tensors.push_back({"d2t", Dtype::kI64, {draft.vocab.size()}, d2t.data()});
    tensors.push_back({"t2d", Dtype::kBool, {draft.vocab.target_vocab}, t2d.data()});
  }
  EAGLET_RETURN_IF_ERROR(write_safetensors(directory + "/model.safetensors", tensors, {{"format", "pt"}}));
  return write_json_file(directory + "/config.json", draft_config_to_json(draft.config));
}

}  // namespace eaglet
