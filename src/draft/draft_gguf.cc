#include "draft/draft_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "formats/gguf_file.h"

namespace eaglet {
namespace {

Status refuse(const std::string& path, const std::string& what, const std::string& todo) {
  return Status(StatusCode::kConfig, what, path, todo);
}

struct Renamed {
  const char *theirs, *ours;
};
constexpr Renamed kTensors[] = {{"fc.weight", "fc.weight"},
                                {"enc.output_norm.weight", "input_norm.weight"},
                                {"blk.0.attn_norm.weight", "layers.0.input_layernorm.weight"},
                                {"blk.0.attn_norm_2.weight", "layers.0.hidden_norm.weight"},
                                {"blk.0.attn_q.weight", "layers.0.self_attn.q_proj.weight"},
                                {"blk.0.attn_k.weight", "layers.0.self_attn.k_proj.weight"},
                                {"blk.0.attn_v.weight", "layers.0.self_attn.v_proj.weight"},
                                {"blk.0.attn_output.weight", "layers.0.self_attn.o_proj.weight"},
                                {"blk.0.ffn_norm.weight", "layers.0.post_attention_layernorm.weight"},
                                {"blk.0.ffn_gate.weight", "layers.0.mlp.gate_proj.weight"},
                                {"blk.0.ffn_up.weight", "layers.0.mlp.up_proj.weight"},
                                {"blk.0.ffn_down.weight", "layers.0.mlp.down_proj.weight"},
                                {"output_norm.weight", "norm.weight"},
                                {"output.weight", "lm_head.weight"},
                                {"token_embd.weight", "embed_tokens.weight"}};

/// llama.cpp rotates neighbours, we rotate halves: row 2*i + j of a head is our row j*D/2 + i.
void deinterleave_rows(const std::vector<float>& from, std::int64_t head_dim, std::int64_t columns,
                       float* to) {
  const std::int64_t rows = static_cast<std::int64_t>(from.size()) / columns, half = head_dim / 2;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t within = row % head_dim;
    const std::int64_t ours = row - within + (within % 2) * half + within / 2;
    std::copy_n(from.begin() + row * columns, columns, to + ours * columns);
  }
}

SourceTensor tensor_from(const std::shared_ptr<GgufFile>& file, const GgufTensor& tensor,
                         const std::string& ours, std::int64_t head_dim) {
  SourceTensor source;
  source.name = ours;
  source.shape = tensor.shape;
  source.type = gguf_type_text(tensor.ggml_type);
  const bool interleaved = ours.ends_with("q_proj.weight") || ours.ends_with("k_proj.weight");
  source.read_f32 = [file, name = tensor.name, shape = tensor.shape, interleaved,
                     head_dim](float* values) -> Status {
    EAGLET_ASSIGN_OR_RETURN(const std::vector<float> read, file->read_f32(name));
    if (interleaved && shape.size() == 2)
      deinterleave_rows(read, head_dim, shape[1], values);
    else
      std::copy(read.begin(), read.end(), values);
    return {};
  };
  source.read_i64 = [name = ours]() -> Result<std::vector<std::int64_t>> {
    return Status(StatusCode::kDataLoss, name + " is no list of whole numbers");
  };
  return source;
}

/// d2t as offsets, from the target ids that llama.cpp keeps.
Result<SourceTensor> map_from(const std::shared_ptr<GgufFile>& file, const GgufTensor& tensor) {
  if (tensor.shape.size() != 1 || tensor.bytes != static_cast<std::uint64_t>(tensor.shape[0]) * 8)
    return Status(StatusCode::kDataLoss, "d2t is no list of 64-bit ids", file->path());
  SourceTensor source;
  source.name = "d2t";
  source.shape = tensor.shape;
  source.type = gguf_type_text(tensor.ggml_type);
  source.read_f32 = [](float*) { return Status(StatusCode::kDataLoss, "d2t is no matrix"); };
  source.read_i64 = [file, data = tensor.data,
                     count = tensor.shape[0]]() -> Result<std::vector<std::int64_t>> {
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(count));
    std::memcpy(offsets.data(), data, offsets.size() * 8);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < 0 || offsets[i] > INT32_MAX)
        return Status(StatusCode::kDataLoss, fmt::format("d2t holds {}, which is no token id", offsets[i]));
      offsets[i] -= static_cast<std::int64_t>(i);
    }
    return offsets;
  };
  return source;
}

Result<RopeConfig> rope_from_keys(const GgufFile& file) {
  RopeConfig rope;
  rope.theta = file.number("eagle3.rope.freq_base").value_or(10000.0);
  const std::string type = file.string("eagle3.rope.scaling.type").value_or("none");
  const double factor = file.number("eagle3.rope.scaling.factor").value_or(1.0);
  if (type == "linear" && factor != 1.0) {
    rope.type = "linear";
    rope.factor = factor;
  } else if (type != "none" && type != "linear") {
    return refuse(file.path(), "rotary scaling of type " + type + " cannot be read back from a GGUF",
                  "import the folder that this GGUF was made of");
  }
  if (file.find("rope_freqs.weight") == nullptr) return rope;
  EAGLET_ASSIGN_OR_RETURN(const std::vector<float> divisors, file.read_f32("rope_freqs.weight"));
  const bool uniform =
      std::all_of(divisors.begin(), divisors.end(), [&](float d) { return d == divisors.front(); });
  if (divisors.empty() || (uniform && divisors.front() == 1.0f)) return rope;
  if (!uniform)
    return refuse(file.path(), "its rotary divisors (rope_freqs.weight) do not tell which scaling made them",
                  "import the folder that this GGUF was made of");
  rope.type = "linear";
  rope.factor = divisors.front();
  return rope;
}

Result<DraftConfig> config_from_keys(const GgufFile& file) {
  DraftConfig c;
  const auto need = [&](const char* key, std::int64_t* value) -> Status {
    const auto found = file.integer(std::string("eagle3.") + key);
    if (!found)
      return Status(StatusCode::kDataLoss, fmt::format("there is no key eagle3.{}", key), file.path());
    *value = *found;
    return {};
  };
  EAGLET_RETURN_IF_ERROR(need("embedding_length", &c.hidden));
  EAGLET_RETURN_IF_ERROR(need("feed_forward_length", &c.intermediate));
  EAGLET_RETURN_IF_ERROR(need("attention.head_count", &c.num_heads));
  EAGLET_RETURN_IF_ERROR(need("target_hidden_size", &c.target_hidden));
  EAGLET_RETURN_IF_ERROR(need("context_length", &c.max_position_embeddings));
  EAGLET_RETURN_IF_ERROR(need("block_count", &c.num_layers));
  c.num_kv_heads = file.integer("eagle3.attention.head_count_kv").value_or(c.num_heads);
  c.head_dim = file.integer("eagle3.attention.key_length")
                   .value_or(file.integer("eagle3.rope.dimension_count")
                                 .value_or(c.num_heads > 0 ? c.hidden / c.num_heads : 0));
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  c.vocab =
      file.integer("eagle3.vocab_size").value_or(tokens ? static_cast<std::int64_t>(tokens->size()) : 0);
  c.draft_vocab = c.vocab;
  if (const GgufTensor* map = file.find("d2t"); map != nullptr && map->shape.size() == 1)
    c.draft_vocab = map->shape[0];
  auto layers = file.integers("eagle3.target_layers");
  if (!layers) layers = file.integers("eagle3.extract_layers");  // builds before October 2026
  if (!layers) return Status(StatusCode::kDataLoss, "there is no key eagle3.target_layers", file.path());
  for (const std::int64_t id : *layers)
    c.aux_layers.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(id, -1, 1 << 20)));
  const auto eps = file.number("eagle3.attention.layer_norm_rms_epsilon");
  if (!eps)
    return Status(StatusCode::kDataLoss, "there is no key eagle3.attention.layer_norm_rms_epsilon",
                  file.path());
  c.rms_norm_eps = std::stod(fmt::format("{}", static_cast<float>(*eps)));  // 1e-5, not 9.99999974e-06
  c.norm_before_residual = file.boolean("eagle3.norm_before_residual").value_or(false);
  c.norm_before_fc =
      file.boolean("eagle3.norm_before_fc").value_or(file.find("enc.output_norm.weight") != nullptr);
  EAGLET_ASSIGN_OR_RETURN(c.rope, rope_from_keys(file));
  c.bos_id = static_cast<std::int32_t>(file.integer("tokenizer.ggml.bos_token_id").value_or(-1));
  c.eos_id = static_cast<std::int32_t>(file.integer("tokenizer.ggml.eos_token_id").value_or(-1));
  return c;
}

}  // namespace

Result<DraftWeights> read_draft_gguf(const std::string& path, const ReadDraftOptions& options,
                                     LoadReport* report) {
  EAGLET_ASSIGN_OR_RETURN(GgufFile opened, GgufFile::open(path));
  const auto file = std::make_shared<GgufFile>(std::move(opened));
  if (file->string("general.architecture").value_or("") != "eagle3")
    return refuse(path,
                  "a GGUF of architecture \"" + file->string("general.architecture").value_or("?") +
                      "\", not an EAGLE-3 draft",
                  "give a draft that llama.cpp serves with --spec-type draft-eagle3");
  DraftConfig config;
  if (const auto own = file->string(kDraftConfigKey)) {
    EAGLET_ASSIGN_OR_RETURN(const Json json, parse_json(*own));
    auto read = draft_config_from_json(json);
    if (!read.ok()) return read.status().at(path);
    config = *read;
  } else {
    EAGLET_ASSIGN_OR_RETURN(config, config_from_keys(*file));
  }
  if (!options.aux_layers.empty()) config.aux_layers = options.aux_layers;
  if (Status status = check_draft_config(config); !status.ok()) return status.at(path);
  TensorSource source;
  source.path = path;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.name == "d2t") {
      EAGLET_ASSIGN_OR_RETURN(SourceTensor map, map_from(file, tensor));
      source.tensors.push_back(std::move(map));
      continue;
    }
    std::string ours = tensor.name;
    for (const Renamed& renamed : kTensors)
      if (tensor.name == renamed.theirs) ours = renamed.ours;
    if (ours == "rope_freqs.weight") continue;  // read with the rotary settings
    source.tensors.push_back(tensor_from(file, tensor, ours, config.head_dim));
  }
  std::sort(source.tensors.begin(), source.tensors.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  source.notes.push_back("read from a GGUF: rows of q and k put back, target ids of d2t made offsets");
  return read_draft_from(source, config, options, report);
}

}  // namespace eaglet
