#pragma once

// Reads a golden file (testdata/golden/README.md) into what the draft needs. For tests only.

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "draft/draft_model.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace eaglet::golden {

inline std::vector<std::string> files() {
  const char* other = std::getenv("EAGLET_GOLDEN_DIR");
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(other != nullptr ? other : EAGLET_TESTDATA "/golden"))
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Golden {
  Json config;
  std::unique_ptr<SafetensorsFile> file;
  DraftWeights weights;
  std::vector<float> embed, verifier_norm, verifier_head, aux, last;
  std::vector<std::int32_t> input_ids, document_ids, position_ids;
  std::vector<std::uint8_t> loss_mask;
  TttOptions options;

  std::vector<float> f32(const std::string& name) const { return *file->read_f32(name); }
  double scalar(const std::string& name) const { return static_cast<double>(file->read_f32(name)->at(0)); }
  DraftInputs inputs() const {
    return {static_cast<std::int64_t>(input_ids.size()),
            input_ids.data(),
            document_ids.data(),
            position_ids.data(),
            loss_mask.data(),
            aux.data(),
            last.data()};
  }
  VerifierTensors verifier() const {
    return {embed.data(), verifier_norm.data(), verifier_head.data(), config["rms_norm_eps"].get<double>()};
  }
};

template <class T>
std::vector<T> whole_numbers(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::int64_t> wide = *file.read_i64(name);
  return std::vector<T>(wide.begin(), wide.end());
}

inline DraftConfig draft_config(const Json& c) {
  DraftConfig d;
  d.hidden = d.target_hidden = c["h"];
  d.num_heads = c["heads"];
  d.num_kv_heads = c["kv"];
  d.head_dim = c["hd"];
  d.intermediate = c["inter"];
  d.num_layers = c["layers"];
  d.vocab = c["V"];
  d.draft_vocab = c["full_vocab"].get<bool>() ? c["V"] : c["Vd"];
  for (std::int32_t i = 0; i < c["aux"].get<std::int32_t>(); ++i) d.aux_layers.push_back(i);
  d.rms_norm_eps = c["rms_norm_eps"];
  d.max_position_embeddings = 4096;
  if (c["rope"].is_object()) d.rope = *rope_from_json(Json{{"rope_parameters", c["rope"]}});
  d.norm_before_residual = c["flags"].value("norm_before_residual", false);
  d.norm_before_fc = c["flags"].value("norm_before_fc", false);
  d.fc_norm = c["flags"].value("fc_norm", false);
  d.norm_output = c["flags"].value("norm_output", false);
  d.qk_norm = c["arch"] == "qwen3";
  const std::int64_t window = c["window"].is_number() ? c["window"].get<std::int64_t>() : 0;
  d.sliding_window.assign(static_cast<std::size_t>(d.num_layers), window);
  return d;
}

inline Golden load(const std::string& path) {
  Golden g;
  g.file = std::make_unique<SafetensorsFile>(std::move(*SafetensorsFile::open(path)));
  g.config = *parse_json(g.file->metadata().at("config"));
  g.weights.config = draft_config(g.config);
  g.weights.table = parameter_table(g.weights.config, g.config["train_head"].get<bool>());
  g.weights.vocab.target_vocab = g.weights.config.vocab;
  if (g.weights.config.draft_vocab == g.weights.config.vocab) {
    for (std::int32_t i = 0; i < g.weights.config.vocab; ++i) g.weights.vocab.target_ids.push_back(i);
  } else {
    bool ascending = false;
    g.weights.vocab = *vocab_from_offsets(*g.file->read_i64("w.d2t"), g.weights.config.vocab, &ascending);
  }
  for (const ParameterInfo& info : g.weights.table) {
    const std::vector<float> values = g.f32("w." + info.name);
    g.weights.values.insert(g.weights.values.end(), values.begin(), values.end());
  }
  g.embed = g.f32("w.embed_tokens.weight");
  g.verifier_norm = g.f32("w.verifier_norm.weight");
  g.verifier_head = g.f32(g.file->find("w.verifier_lm_head_full") ? "w.verifier_lm_head_full"
                                                                  : "w.verifier_lm_head.weight");
  g.aux = g.f32("in.hidden_states");
  g.last = g.f32("in.verifier_last_hidden_states");
  g.input_ids = whole_numbers<std::int32_t>(*g.file, "in.input_ids");
  g.document_ids = whole_numbers<std::int32_t>(*g.file, "in.document_ids");
  g.position_ids = whole_numbers<std::int32_t>(*g.file, "in.position_ids");
  g.loss_mask = whole_numbers<std::uint8_t>(*g.file, "in.loss_mask");
  g.options.ttt_steps = g.config["ttt"];
  g.options.step_decay = g.config["decay"];
  g.options.losses = *parse_loss(g.config["loss"].get<std::string>());
  return g;
}

}  // namespace eaglet::golden
