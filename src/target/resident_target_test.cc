#include "target/resident_target.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "formats/safetensors.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;

struct Golden {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<float> states, logits;  // of all tokens, a document after the other
  std::int64_t hidden = 0, vocab = 0;
};

std::vector<fs::path> folders() {
  std::vector<fs::path> all;
  const char* given = std::getenv("EAGLET_GOLDEN_TARGETS");
  for (const auto& entry :
       fs::directory_iterator(given != nullptr ? given : std::string(EAGLET_TESTDATA) + "/golden_targets"))
    if (entry.is_directory()) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

Golden read_golden(const fs::path& folder) {
  auto file = SafetensorsFile::open((folder / "expected.safetensors").string());
  Golden golden;
  const auto ids = *file->read_i64("in.input_ids");
  const auto columns = static_cast<std::size_t>(file->find("in.input_ids")->shape[1]);
  for (std::size_t at = 0; at < ids.size(); at += columns)
    golden.documents.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                  ids.begin() + static_cast<std::ptrdiff_t>(at + columns));
  golden.states = *file->read_f32("out.last_hidden_pre_norm");
  golden.logits = *file->read_f32("out.logits");
  golden.hidden = static_cast<std::int64_t>(golden.states.size() / ids.size());
  golden.vocab = static_cast<std::int64_t>(golden.logits.size() / ids.size());
  return golden;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float v : values) most = std::max(most, std::fabs(static_cast<double>(v)));
  return most;
}

double farthest(const float* a, const float* b, std::int64_t n) {
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i)
    most = std::max(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

std::unique_ptr<ResidentTarget> load(const fs::path& folder, ComputeType type) {
  auto target =
      ResidentTarget::load(folder.string(), type, [](std::int64_t, std::int64_t) { return Status(); });
  EXPECT_TRUE(target.ok()) << target.status().what();
  return target.ok() ? std::move(*target) : nullptr;
}

/// A document on its way: how much of it goes in at once at first, then `stride` tokens at a time.
struct Walk {
  std::size_t document = 0, prompt = 1, stride = 1;
};

/// All rows' logits of the first, the last row's of some, none of others.
std::int64_t outputs_of(std::size_t walk, std::size_t step, std::size_t rows) {
  if (walk % 3 == 0) return static_cast<std::int64_t>(rows);
  return walk % 2 == 0 || step % 2 == 0 ? 1 : 0;
}

/// Takes the walks through the target side by side, each beginning a step after the one before, and gives the
/// largest differences of the last states and of the logits from the golden ones.
std::pair<double, double> walk(ResidentTarget* target, const Golden& golden, const std::vector<Walk>& walks) {
  std::vector<SequenceCache> caches;
  for (const Walk& w : walks)
    caches.push_back(target->make_cache(static_cast<std::int64_t>(golden.documents[w.document].size())));
  double states_off = 0, logits_off = 0;
  for (std::size_t step = 0;; ++step) {
    std::vector<NextTokens> next;
    std::vector<std::size_t> first;  // golden row of each sequence's first new token
    for (std::size_t i = 0; i < walks.size(); ++i) {
      const auto& document = golden.documents[walks[i].document];
      const auto done = static_cast<std::size_t>(caches[i].length());
      if (step < i % 30 || done == document.size()) continue;
      const std::size_t end =
          std::min(document.size(), done + (done == 0 ? walks[i].prompt : walks[i].stride));
      next.push_back({&caches[i],
                      {document.begin() + static_cast<std::ptrdiff_t>(done),
                       document.begin() + static_cast<std::ptrdiff_t>(end)},
                      outputs_of(i, step, end - done)});
      first.push_back(walks[i].document * document.size() + done);
    }
    if (next.empty()) return {states_off, logits_off};
    std::mutex one;
    const Status stepped =
        target->step(next, [&](std::size_t from, std::size_t count, std::int64_t layers, const float* x) {
          if (layers != target->config().num_layers) return;
          const std::lock_guard lock(one);
          for (std::size_t i = from; i < from + count; ++i) {
            const auto n = static_cast<std::int64_t>(next[i].ids.size()) * golden.hidden;
            states_off = std::max(
                states_off,
                farthest(golden.states.data() + static_cast<std::int64_t>(first[i]) * golden.hidden, x, n));
            x += n;
          }
        });
    EXPECT_TRUE(stepped.ok()) << stepped.what();
    std::int64_t output = 0;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const auto end = static_cast<std::int64_t>(first[i] + next[i].ids.size());
      for (std::int64_t row = end - next[i].outputs; row < end; ++row)
        logits_off = std::max(logits_off, farthest(golden.logits.data() + row * golden.vocab,
                                                   target->logits(output++), golden.vocab));
    }
  }
}

const std::vector<Walk> kWalks = {{0, 5, 1}, {1, 1, 1}, {0, 17, 3}, {1, 9, 1}, {1, 1000, 1}};

// Token by token, some at once, the whole document at once; beside others at other places: what the model
// gives for the whole document.
TEST(golden_target, TokenByTokenIsTheWholeDocument) {
  ASSERT_GE(folders().size(), 1u);
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.string());
    const Golden golden = read_golden(folder);
    const auto target = load(folder, ComputeType::kF32);
    ASSERT_NE(target, nullptr);
    const auto [states_off, logits_off] = walk(target.get(), golden, kWalks);
    EXPECT_LE(states_off, 2e-5 * largest(golden.states));
    EXPECT_LE(logits_off, 2e-5 * largest(golden.logits));
  }
}

// So many at once that each thread takes its own sequences through the layers.
TEST(golden_target, ManySequencesTokenByToken) {
  std::vector<Walk> many;
  for (std::size_t i = 0; i < 24; ++i) many.push_back({i % 2, 1 + i * 5 % 19, 1 + i % 3});
  for (std::size_t i = 0; i < 200; ++i) many.push_back({i % 2, 3, 1});
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.string());
    const Golden golden = read_golden(folder);
    const auto target = load(folder, ComputeType::kF32);
    ASSERT_NE(target, nullptr);
    const auto [states_off, logits_off] = walk(target.get(), golden, many);
    EXPECT_LE(states_off, 2e-5 * largest(golden.states));
    EXPECT_LE(logits_off, 2e-5 * largest(golden.logits));
  }
}

// bf16 weights and caches: near, and not the same.
TEST(ResidentTarget, Bf16IsNear) {
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.string());
    const Golden golden = read_golden(folder);
    const auto target = load(folder, ComputeType::kBf16);
    ASSERT_NE(target, nullptr);
    if (target->config().experts.count > 0)
      continue;  // rounding sends tokens of a tiny model to other experts
    const double off = walk(target.get(), golden, kWalks).second;
    EXPECT_GT(off, 1e-5 * largest(golden.logits));
    EXPECT_LT(off, 0.1 * largest(golden.logits));
  }
}

// Drafted tokens that were refused leave nothing behind.
TEST(ResidentTarget, RowsThatAreCutOffAreForgotten) {
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.string());
    const Golden golden = read_golden(folder);
    const auto target = load(folder, ComputeType::kF32);
    ASSERT_NE(target, nullptr);
    const auto& document = golden.documents[0];
    SequenceCache cache = target->make_cache(64);
    ASSERT_TRUE(target->step({{&cache, {document.begin(), document.begin() + 6}, true}}).ok());
    ASSERT_TRUE(target->step({{&cache, {1, 2, 3}, true}}).ok());
    cache.cut(6);
    ASSERT_TRUE(target->step({{&cache, {document[6], document[7]}, true}}).ok());
    EXPECT_LE(farthest(golden.logits.data() + 7 * golden.vocab, target->logits(0), golden.vocab),
              2e-5 * largest(golden.logits));
  }
}

TEST(ResidentTarget, WhatDoesNotFitIsRefused) {
  const auto target = load(folders()[0], ComputeType::kF32);
  ASSERT_NE(target, nullptr);
  SequenceCache cache = target->make_cache(64);
  EXPECT_FALSE(target->step({{&cache, {}, true}}).ok());
  EXPECT_FALSE(target->step({{&cache, std::vector<std::int32_t>(65, 1), true}}).ok());
  EXPECT_EQ(target->step({{&cache, {static_cast<std::int32_t>(target->config().vocab)}, true}}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.length(), 0);
}

}  // namespace
}  // namespace eaglet
