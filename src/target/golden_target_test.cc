#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "formats/safetensors.h"
#include "target/target_forward.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;

constexpr double kRelative = 2e-5;  // of the largest value of the tensor

std::vector<fs::path> folders_in(const std::string& directory) {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_directory()) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<fs::path> folders() {
  const char* given = std::getenv("EAGLET_GOLDEN_TARGETS");
  return folders_in(given != nullptr ? given : std::string(EAGLET_TESTDATA) + "/golden_targets");
}

void expect_close(const std::vector<float>& wanted, const float* found) {
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(wanted[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(wanted[i]) - static_cast<double>(found[i])));
  }
  EXPECT_LE(worst, kRelative * largest);
}

struct Expected {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<const std::vector<std::int32_t>*> pointers;
  SafetensorsFile file;
  std::vector<float> tensor(const std::string& name) const { return *file.read_f32("out." + name); }
};

Expected read_expected(const fs::path& folder) {
  Expected e{{}, {}, std::move(*SafetensorsFile::open((folder / "expected.safetensors").string()))};
  const auto ids = *e.file.read_i64("in.input_ids");
  const auto columns = static_cast<std::size_t>(e.file.find("in.input_ids")->shape[1]);
  for (std::size_t at = 0; at < ids.size(); at += columns)
    e.documents.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                             ids.begin() + static_cast<std::ptrdiff_t>(at + columns));
  for (const auto& document : e.documents) e.pointers.push_back(&document);
  return e;
}

// Every layer's input, the state before the final norm, and the logits.
void expect_every_state_and_logit(const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.string());
    const Expected e = read_expected(folder);
    auto forward = TargetForward::open(folder.string());
    ASSERT_TRUE(forward.ok()) << forward.status().what();
    const std::int64_t layers = (*forward)->config().num_layers;
    std::vector<float> last;
    const Status ran = (*forward)->run(e.pointers, layers, [&](std::int64_t k, const float* x) {
      SCOPED_TRACE("after " + std::to_string(k) + " layers");
      const auto wanted = e.tensor(k < layers ? "layer_input_" + std::to_string(k) : "last_hidden_pre_norm");
      expect_close(wanted, x);
      last.assign(x, x + wanted.size());
      return Status();
    });
    ASSERT_TRUE(ran.ok()) << ran.what();
    std::vector<float> logits;
    const auto rows = static_cast<std::int64_t>(last.size()) / (*forward)->config().hidden;
    ASSERT_TRUE((*forward)->logits(rows, last.data(), &logits).ok());
    SCOPED_TRACE("logits");
    expect_close(e.tensor("logits"), logits.data());
  }
}

TEST(golden_target, EveryStateAndLogit) {
  ASSERT_GE(folders().size(), 1u);
  expect_every_state_and_logit(folders());
}

// Made by tests/optional/make_quantised_targets.py: what transformers computes with the weights taken back.
TEST(QuantisedTarget, EveryStateAndLogit) {
  const auto quantised = folders_in(std::string(EAGLET_TESTDATA) + "/quantised_targets");
  ASSERT_EQ(quantised.size(), 4u);
  expect_every_state_and_logit(quantised);
}

// A document's states do not depend on its neighbours, nor on where in a pass it stands.
TEST(golden_target, DocumentsDoNotSeeEachOther) {
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.string());
    const Expected e = read_expected(folder);
    auto forward = TargetForward::open(folder.string());
    ASSERT_TRUE(forward.ok());
    const std::int64_t layers = (*forward)->config().num_layers;
    const std::vector<std::int32_t> other(e.documents[0].begin(), e.documents[0].begin() + 7);
    const std::vector<const std::vector<std::int32_t>*> mixed = {&other, e.pointers[1], &other,
                                                                 e.pointers[0]};
    const auto width = static_cast<std::size_t>((*forward)->config().hidden), length = e.documents[0].size();
    ASSERT_TRUE((*forward)
                    ->run(mixed, layers,
                          [&](std::int64_t k, const float* x) {
                            if (k < layers) return Status();
                            const auto wanted = e.tensor("last_hidden_pre_norm");
                            const auto half = wanted.begin() + static_cast<std::ptrdiff_t>(length * width);
                            expect_close({half, wanted.end()}, x + 7 * width);
                            expect_close({wanted.begin(), half}, x + (14 + length) * width);
                            return Status();
                          })
                    .ok());
  }
}

std::vector<std::vector<float>> states_of(TargetForward* forward,
                                          const std::vector<const std::vector<std::int32_t>*>& documents) {
  std::vector<std::vector<float>> last;
  const std::int64_t layers = forward->config().num_layers, hidden = forward->config().hidden;
  const Status ran = forward->run(documents, layers, [&](std::int64_t k, const float* x) {
    for (const auto* document : documents) {
      const auto floats = static_cast<std::ptrdiff_t>(document->size()) * hidden;
      if (k == layers) last.emplace_back(x, x + floats);
      x += floats;
    }
    return Status();
  });
  EXPECT_TRUE(ran.ok()) << ran.what();
  return last;
}

// Of one document, of many in any order, one a pass or all together: the same bits, in either arithmetic.
TEST(Deterministic, NeighboursAndPassesChangeNoBit) {
  std::vector<std::vector<std::int32_t>> documents;
  for (std::int32_t i = 0; i < 23; ++i) {  // 1,300 rows: many tiles, documents across two of them
    documents.emplace_back();
    const std::int32_t length = i == 11 ? 600 : 7 + i * 23 % 61;  // one for all threads together
    for (std::int32_t t = 0; t < length; ++t) documents.back().push_back((i * 31 + t * 7) % 90);
  }
  for (const fs::path& folder : folders())
    for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16}) {
      SCOPED_TRACE(folder.string() + " " + compute_type_name(type));
      auto forward = TargetForward::open(folder.string(), {type, true});
      ASSERT_TRUE(forward.ok());
      std::vector<const std::vector<std::int32_t>*> all, backwards;
      for (const auto& document : documents) all.push_back(&document);
      backwards.assign(all.rbegin(), all.rend());
      const auto together = states_of(forward->get(), all), turned = states_of(forward->get(), backwards);
      for (std::size_t i = 0; i < documents.size(); ++i) {
        ASSERT_EQ(together[i], turned[documents.size() - 1 - i]) << "document " << i;
        ASSERT_EQ(together[i], states_of(forward->get(), {all[i]})[0]) << "document " << i;
      }
    }
}

// Weights that stay packed after the first pass give the bits of weights that are read anew.
TEST(Deterministic, KeptWeightsChangeNoBit) {
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.string());
    const Expected e = read_expected(folder);
    ForwardOptions keeping;
    keeping.keep_weights = true;
    auto anew = TargetForward::open(folder.string()), kept = TargetForward::open(folder.string(), keeping);
    ASSERT_TRUE(anew.ok() && kept.ok());
    const auto wanted = states_of(anew->get(), e.pointers);
    for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(states_of(kept->get(), e.pointers), wanted);
  }
}

// bf16 products: near to fp32, and not the same (or the option would do nothing).
TEST(Bf16Target, IsNearToF32) {
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.string());
    const Expected e = read_expected(folder);
    auto f32 = TargetForward::open(folder.string()),
         bf16 = TargetForward::open(folder.string(), {ComputeType::kBf16, true});
    ASSERT_TRUE(f32.ok() && bf16.ok());
    const auto wanted = states_of(f32->get(), e.pointers), found = states_of(bf16->get(), e.pointers);
    ASSERT_NE(wanted, found);
    double dot = 0, a = 0, b = 0;
    for (std::size_t i = 0; i < wanted[0].size(); ++i) {
      dot += static_cast<double>(wanted[0][i]) * static_cast<double>(found[0][i]);
      a += static_cast<double>(wanted[0][i]) * static_cast<double>(wanted[0][i]);
      b += static_cast<double>(found[0][i]) * static_cast<double>(found[0][i]);
    }
    // Rounding sends some tokens of a tiny model to other experts.
    EXPECT_GT(dot / std::sqrt(a * b), (*f32)->config().experts.count > 0 ? 0.98 : 0.999);
  }
}

}  // namespace
}  // namespace eaglet
