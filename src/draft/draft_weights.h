#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/draft_config.h"
#include "vocab/draft_vocab.h"

namespace eaglet {

/// One parameter tensor inside the draft's single block of fp32 parameters. Names are speculators'
/// ("fc.weight", "layers.0.self_attn.q_proj.weight", ..., "lm_head.weight").
struct ParameterInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, elements = 0;  // in floats
  bool trainable = true;
};

/// The table of a draft's parameters: a pure function of its arguments. lm_head is last, so that a frozen
/// head makes the trainable part one contiguous range. Embeddings are in it (first) only when they are
/// trained; otherwise they are the target's, or DraftWeights::embed_tokens.
std::vector<ParameterInfo> parameter_table(const DraftConfig& config, bool train_head,
                                           bool train_embeddings = false);

/// A draft's weights in memory.
struct DraftWeights {
  DraftConfig config;
  DraftVocab vocab;
  std::vector<ParameterInfo> table;
  std::vector<float> values;  // all parameters, in table order, 64-byte aligned offsets not guaranteed
  /// Own embeddings when a foreign draft brought some that differ from the target's; else empty.
  std::vector<float> embed_tokens;
  /// nullptr when the config has no such tensor.
  const ParameterInfo* find(const std::string& name) const;
  float* data(const std::string& name);
  const float* data(const std::string& name) const;
  /// The draft's own embeddings [V, H], trained or brought along; nullptr: it uses the target's.
  const float* own_embeddings() const;
};

/// New matrices normal(0, 0.02) from `seed`, norms 1; lm_head rows of the draft vocabulary and the final norm
/// copied from the target. target_head [V, Ht], target_final_norm [Ht]. Where the draft's width differs from
/// the target's (H != Ht) nothing can be copied: head normal(0, 0.02), final norm 1, and the caller must
/// train the head. The config is a checked one (check_draft_config). A tensor's values depend on seed and
/// name only. `target_embeddings` [V, Ht]: embeddings are trained and start there (H != Ht: normal(0, 0.02));
/// nullptr: they are the target's.
DraftWeights new_draft(const DraftConfig& config, const DraftVocab& vocab, bool train_head,
                       const std::vector<float>& target_head, const std::vector<float>& target_final_norm,
                       std::uint64_t seed, const std::vector<float>* target_embeddings = nullptr);

/// Makes the embeddings a trained parameter: the draft's own, or a copy of the target's [V, H] where it has
/// none. kConfig when neither fits.
Status train_embeddings(const std::vector<float>& target_embeddings, DraftWeights* draft);

/// What loading did with every tensor of the file and of the draft.
struct LoadReport {
  std::vector<std::string> loaded;
  struct Skipped {
    std::string name, reason;
  };
  std::vector<Skipped> skipped;    // in the file, not used
  std::vector<Skipped> missing;    // in the draft, not in the file; the reason says what was put there
  std::vector<std::string> notes;  // anything else that was changed on the way in
};

/// What a foreign draft may lack and the caller can give.
struct ReadDraftOptions {
  bool train_head = false;
  std::vector<std::int32_t> aux_layers;  // wins over the config's list; vLLM numbering
  const std::vector<float>* target_head =
      nullptr;  // [V, Ht]: used when lm_head is missing and the vocabulary is full
};

/// Reads a draft directory: config.json + model.safetensors (ours, speculators or SpecForge/EAGLE names:
/// midlayer.*, layers.0.*, model.*; fp32, bf16 or fp16). Rows of a head whose map does not ascend are sorted
/// (noted). Errors: kNotFound, kDataLoss, kConfig, kNumeric; a missing tensor, a missing head or map with a
/// reduced vocabulary, a map that is not the offsets it should be: all are errors that name the tensor, never
/// a guess. `report` may be nullptr.
Result<DraftWeights> read_draft(const std::string& directory, const ReadDraftOptions& options,
                                LoadReport* report);
Result<DraftWeights> read_draft(const std::string& directory, bool train_head, LoadReport* report);
/// Writes config.json and model.safetensors (fp32, speculators names, d2t offsets and t2d when reduced;
/// embed_tokens when the draft has its own) into an existing directory, each by temporary name and rename.
Status write_draft(const std::string& directory, const DraftWeights& draft);

}  // namespace eaglet
