#pragma once

// A draft that is often right about the small targets. For tests only.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "draft/resident_draft.h"
#include "generate/toy_answers_test.h"
#include "target/target_forward.h"

namespace eaglet {

/// Says the likeliest next token of a row once more: with a layer of zeros the target's last state comes
/// through, and the head is the target's. Right wherever a target repeats itself.
inline DraftWeights repeating_draft(const ResidentTarget& target, const std::string& model) {
  const TargetConfig& c = target.config();
  DraftConfig draft;
  draft.hidden = draft.target_hidden = c.hidden;
  draft.num_heads = 2;
  draft.num_kv_heads = 1;
  draft.head_dim = 8;
  draft.intermediate = 16;
  draft.vocab = draft.draft_vocab = c.vocab;
  draft.aux_layers = {1, static_cast<std::int32_t>(c.num_layers), 0};
  draft.rms_norm_eps = c.rms_norm_eps;
  DraftVocab vocab;
  vocab.target_vocab = c.vocab;
  for (std::int32_t id = 0; id < c.vocab; ++id) vocab.target_ids.push_back(id);
  auto files = open_target_files(folder_of(model));
  const std::vector<std::int64_t> table = {c.vocab, c.hidden};
  const auto head = files->tensors.read(c.tied_head ? "model.embed_tokens.weight" : "lm_head.weight", table);
  const auto norm = files->tensors.read("model.norm.weight", {c.hidden});
  EXPECT_TRUE(head.ok() && norm.ok());
  DraftWeights weights = new_draft(draft, vocab, true, *head, *norm, 1);
  const auto zero = [&](const char* name) {
    std::fill_n(weights.data(name), weights.find(name)->elements, 0.0f);
  };
  for (const char* name : {"fc.weight", "layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"})
    zero(name);
  for (std::int64_t i = 0; i < c.hidden; ++i)
    weights.data("fc.weight")[i * 3 * c.hidden + c.hidden + i] = 1;  // the second of the three
  return weights;
}

inline std::unique_ptr<ResidentDraft> load_draft(const ResidentTarget& target, const std::string& model) {
  auto draft = ResidentDraft::make(repeating_draft(target, model), target.embeddings(), ComputeType::kF32);
  EXPECT_TRUE(draft.ok()) << draft.status().what();
  return std::move(*draft);
}

}  // namespace eaglet
