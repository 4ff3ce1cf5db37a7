#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/rng.h"
#include "formats/target_model.h"
#include "store/store.h"
#include "train/train.h"

namespace eaglet::toy {

// A target of width 16 and a store of random states: big enough for several packs an epoch, small enough for
// milliseconds a step.
inline TargetFacts target() {
  TargetFacts facts;
  facts.path = "toy.gguf";
  facts.architecture = "llama";
  facts.name = "toy";
  facts.num_layers = 8;
  facts.hidden = 16;
  facts.vocab = 40;
  facts.num_heads = 2;
  facts.num_kv_heads = 1;
  facts.head_dim = 8;
  facts.intermediate = 24;
  facts.max_position_embeddings = 256;
  facts.rms_norm_eps = 1e-5;
  facts.tied_head = true;
  facts.bos_id = 1;
  facts.eos_id = 2;
  facts.end_ids = {2};
  facts.special_ids = {0, 1, 2};
  facts.identity = "00000000000070e5";
  return facts;
}

inline std::vector<float> normals(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(rng.normal()));
  return values;
}

inline TargetWeights weights() {
  TargetWeights weights;
  weights.embed_tokens = normals(40 * 16, 1);
  weights.final_norm.assign(16, 1.0f);
  return weights;
}

inline StoreHeader header() {
  StoreHeader header;
  header.target_identity = target().identity;
  header.target_name = "toy";
  header.hidden = 16;
  header.target_layers = 8;
  header.aux_layers = {2, 4, 5};
  return header;
}

inline DocumentStates document(int number, std::int64_t tokens, std::int64_t prompt_tokens) {
  Rng rng(static_cast<std::uint64_t>(number) + 100);
  DocumentStates document;
  document.id = "d" + std::to_string(number);
  for (std::int64_t i = 0; i < tokens; ++i) {
    document.input_ids.push_back(static_cast<std::int32_t>(3 + rng.below(20)));
    document.loss_mask.push_back(i >= prompt_tokens ? 1 : 0);
    for (int j = 0; j < 4 * 16; ++j) document.states.push_back(f32_to_bf16(static_cast<float>(rng.normal())));
  }
  return document;
}

inline std::string fresh_directory(const std::string& name) {
  const std::string path = testing::TempDir() + "eaglet_train_" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

inline void write_store(const std::string& path, const StoreHeader& header, int documents = 22,
                        std::int64_t prompt_tokens = 4) {
  auto writer = StoreWriter::open(path, header);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (int i = 0; i < documents; ++i) {
    const Status status = (*writer)->append(document(i, 12 + (i * 7) % 13, prompt_tokens));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ASSERT_TRUE((*writer)->finish().ok());
}

// 32 rows a batch: about 11 batches an epoch.
inline TrainOptions options(const std::string& store, const std::string& output_dir) {
  TrainOptions options;
  options.store_path = store;
  options.model_path = "toy.gguf";
  options.output_dir = output_dir;
  options.max_seq_len = 32;
  options.epochs = 2;
  options.compute_type = "f32";  // what is fastest here must not decide what a test sees
  options.draft_vocab_size = 24;
  options.warmup_steps = 2;
  options.hold_out_every = 5;
  options.threads = 1;  // tests run beside each other
  return options;
}

}  // namespace eaglet::toy
