#include "train/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "device/threads.h"
#include "formats/safetensors.h"

namespace eaglet {
namespace {

DraftConfig small_config() {
  DraftConfig c;
  c.hidden = c.target_hidden = 24;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 12;
  c.intermediate = 40;
  c.vocab = 60;
  c.draft_vocab = 50;
  c.aux_layers = {1, 2, 3};
  return c;
}

std::vector<float> normals(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.normal());
  return x;
}

std::size_t elements_of(const std::vector<ParameterInfo>& table) {
  return static_cast<std::size_t>(table.back().offset + table.back().elements);
}

OptimizerOptions options_of(bool muon) {
  OptimizerOptions options;
  options.use_muon = muon;
  options.muon_lr_ratio = 2;
  return options;
}

class OptimizerTest : public testing::Test {
 protected:
  void SetUp() override { set_num_threads(1); }
  void TearDown() override { set_num_threads(0); }
  const std::vector<ParameterInfo> table_ = parameter_table(small_config(), true);
  const std::size_t n_ = elements_of(table_);
};

TEST_F(OptimizerTest, TheUsualSplit) {
  for (const ParameterInfo& p : table_) {
    const bool matrix = p.shape.size() == 2;
    EXPECT_EQ(learns_by_muon(p), matrix && p.name != "lm_head.weight") << p.name;
  }
  EXPECT_FALSE(learns_by_muon({"x.weight", {1, 9}, 0, 9, true}));
  EXPECT_FALSE(learns_by_muon({"embed_tokens.weight", {9, 9}, 0, 81, true}));
  EXPECT_FALSE(learns_by_muon({"fc.weight", {9, 9}, 0, 81, false}));
}

TEST_F(OptimizerTest, AdamwIsTheOpOverTheWholeBlock) {
  Optimizer optimizer(options_of(false), table_);
  std::vector<float> w = normals(n_, 1), w_op = w, m(n_, 0.0f), v(n_, 0.0f);
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> g = normals(n_, 10 + static_cast<std::uint64_t>(t));
    optimizer.update(w.data(), g.data(), 0.5, 0.01);
    adamw(static_cast<std::int64_t>(n_), w_op.data(), g.data(), m.data(), v.data(), 0.5, 0.01, t, {});
  }
  EXPECT_EQ(w, w_op);
  EXPECT_EQ(optimizer.updates(), 3);
  EXPECT_EQ(optimizer.state_bytes(), 8 * n_);
}

TEST_F(OptimizerTest, MuonMovesMatricesAndAdamwTheRest) {
  Optimizer optimizer(options_of(true), table_);
  std::vector<float> w = normals(n_, 1);
  const std::vector<float> before = w, g = normals(n_, 2);
  optimizer.update(w.data(), g.data(), 1.0, 0.01);
  for (const ParameterInfo& p : table_) {
    const auto at = static_cast<std::size_t>(p.offset), size = static_cast<std::size_t>(p.elements);
    std::vector<float> want(before.begin() + p.offset, before.begin() + p.offset + p.elements), m(size, 0.0f),
        v(size, 0.0f);
    if (learns_by_muon(p)) {
      std::vector<float> scratch(static_cast<std::size_t>(muon_scratch_floats(p.shape[0], p.shape[1])));
      muon(p.shape[0], p.shape[1], want.data(), g.data() + at, m.data(), 1.0, 0.02, {}, scratch.data());
    } else {
      adamw(p.elements, want.data(), g.data() + at, m.data(), v.data(), 1.0, 0.01, 1, {});
    }
    EXPECT_EQ(want, std::vector<float>(w.begin() + p.offset, w.begin() + p.offset + p.elements)) << p.name;
  }
  EXPECT_LT(optimizer.state_bytes(), 8 * n_);
}

// Shards in one process: each updates its own copy, then the pieces are put together.
TEST_F(OptimizerTest, ShardsTogetherAreOne) {
  for (const bool muon : {false, true}) {
    for (const int shards : {2, 3, 5}) {
      Optimizer whole(options_of(muon), table_);
      std::vector<std::unique_ptr<Optimizer>> parts;
      std::uint64_t bytes = 0;
      for (int s = 0; s < shards; ++s)
        parts.push_back(std::make_unique<Optimizer>(options_of(muon), table_, s, shards));
      std::vector<float> w = normals(n_, 1), together = w;
      const std::vector<float> g = normals(n_, 2), before = w;
      whole.update(w.data(), g.data(), 1.0, 0.01);
      std::vector<int> touched(n_, 0);
      for (const auto& part : parts) {
        std::vector<float> own = before;
        part->update(own.data(), g.data(), 1.0, 0.01);
        for (std::size_t i = 0; i < n_; ++i)
          if (own[i] != before[i]) {
            together[i] = own[i];
            ++touched[i];
          }
        if (!muon) bytes += part->bytes();
      }
      EXPECT_EQ(together, w);
      EXPECT_LE(*std::max_element(touched.begin(), touched.end()), 1);
      if (!muon) {
        EXPECT_EQ(bytes, whole.bytes());
        EXPECT_LT(parts[0]->bytes(), whole.bytes() * 2 / static_cast<std::uint64_t>(shards));
      }
    }
  }
}

TEST_F(OptimizerTest, ReadsBackWhatItWroteAndGoesOnBitEqual) {
  const auto comm = one_rank();
  for (const bool muon : {false, true}) {
    const std::string path = testing::TempDir() + (muon ? "muon" : "adamw") + ".safetensors";
    Optimizer first(options_of(muon), table_), second(options_of(muon), table_);
    std::vector<float> w = normals(n_, 1);
    first.update(w.data(), normals(n_, 2).data(), 1.0, 0.01);
    ASSERT_TRUE(first.write(path, *comm).ok());
    const Status read = second.read(path);
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_EQ(second.updates(), 1);
    std::vector<float> w2 = w;
    first.update(w.data(), normals(n_, 3).data(), 1.0, 0.01);
    second.update(w2.data(), normals(n_, 3).data(), 1.0, 0.01);
    EXPECT_EQ(w, w2);
    // A shard takes its own part of the same file.
    Optimizer shard(options_of(muon), table_, 1, 2);
    EXPECT_TRUE(shard.read(path).ok());
    Optimizer other(options_of(!muon), table_);
    const Status refused = other.read(path);
    EXPECT_EQ(refused.code(), StatusCode::kConfig);
    EXPECT_THAT(refused.todo(), testing::HasSubstr(muon ? "--optimizer muon" : "--optimizer adamw"));
    const auto file = SafetensorsFile::open(path);
    EXPECT_EQ(file->find("momentum_buffer.fc.weight") != nullptr, muon);
    EXPECT_EQ(file->find("exp_avg_sq.fc.weight") != nullptr, !muon);
    EXPECT_NE(file->find("exp_avg_sq.lm_head.weight"), nullptr);
  }
}

}  // namespace
}  // namespace eaglet
