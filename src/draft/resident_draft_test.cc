#include "draft/resident_draft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "draft/golden_file.h"

namespace eaglet {
namespace {

struct Trained {
  golden::Golden golden;
  Predictions predictions;  // of training's forward, with logits
  std::int64_t rows() const { return static_cast<std::int64_t>(golden.input_ids.size()); }
  std::int64_t aux_width() const {
    return golden.weights.config.num_aux() * golden.weights.config.target_hidden;
  }
  const float* logits(int k, std::int64_t row) const {
    return predictions.logits.data() + (k * rows() + row) * golden.weights.config.draft_vocab;
  }
};

Trained trained(const std::string& path) {
  Trained t{golden::load(path), {}};
  t.predictions.with_logits = true;
  auto model = DraftModel::create(t.golden.weights, t.golden.verifier(), t.golden.options, t.rows(), false);
  EXPECT_TRUE(model.ok()) << model.status().what();
  const auto sums = (*model)->step(t.golden.inputs(), false, &t.predictions);
  EXPECT_TRUE(sums.ok()) << sums.status().what();
  return t;
}

/// The documents of the packed batch: first row and rows of each.
std::vector<std::pair<std::int64_t, std::int64_t>> documents(const golden::Golden& g) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (std::size_t i = 0; i < g.document_ids.size(); ++i) {
    if (g.document_ids[i] < 0) continue;
    if (i == 0 || g.document_ids[i] != g.document_ids[i - 1])
      all.push_back({static_cast<std::int64_t>(i), 0});
    ++all.back().second;
  }
  return all;
}

/// A document on its way: its cache holds `known` rows, then those of the drafting steps.
struct Served {
  std::int64_t first, rows, known = 0;
  HeadCache cache;
};

// Distance of all logits that training computed, by their size; how many were compared.
struct Off {
  double most = 0;
  std::int64_t compared = 0;
  void compare(const float* want, const float* got, std::int64_t n) {
    if (std::isnan(want[0])) return;  // a row that training skips
    double largest = 0, off = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::fabs(double{want[i]}));
      off = std::max(off, std::fabs(double{want[i]} - double{got[i]}));
    }
    most = std::max(most, off / (largest + 1e-6));
    ++compared;
  }
};

/// All documents side by side: `stride` known rows more for each, from their last one the drafting steps with
/// the tokens that really follow, then back to what is known.
Off serve(const Trained& t, ComputeType type, std::int64_t stride) {
  const golden::Golden& g = t.golden;
  auto draft = ResidentDraft::make(g.weights, g.embed, type);
  EXPECT_TRUE(draft.ok()) << draft.status().what();
  std::vector<Served> all;
  for (const auto& [first, rows] : documents(g))
    all.push_back({first, rows, 0, HeadCache((*draft)->cache_shape(), rows + g.options.ttt_steps)});
  const std::int64_t vocab = g.weights.config.draft_vocab;
  Off off;
  for (std::int64_t round = 0;; ++round) {
    std::vector<DraftRows> known;
    std::vector<Served*> of;
    for (Served& s : all) {
      const std::int64_t n = std::min(stride + (s.first + round) % 2, s.rows - s.known);
      if (n == 0) continue;
      const auto* tokens = g.input_ids.data() + s.first + s.known;
      known.push_back({&s.cache, {tokens, tokens + n}, g.aux.data() + (s.first + s.known) * t.aux_width()});
      s.known += n;
      of.push_back(&s);
    }
    if (known.empty()) return off;
    (*draft)->begin(known);
    std::vector<std::int32_t> which;
    for (std::size_t i = 0; i < of.size(); ++i) {
      which.push_back(static_cast<std::int32_t>(i));
      off.compare(t.logits(0, of[i]->first + of[i]->known - 1),
                  (*draft)->logits(static_cast<std::int64_t>(i)), vocab);
    }
    for (int k = 1; k < g.options.ttt_steps; ++k) {
      std::vector<std::int32_t> going, tokens;
      for (const std::int32_t i : which) {
        const Served& s = *of[static_cast<std::size_t>(i)];
        if (s.known - 1 + k >= s.rows) continue;  // beyond the document's end
        going.push_back(i);
        tokens.push_back(g.input_ids[static_cast<std::size_t>(s.first + s.known - 1 + k)]);
      }
      which = going;
      if (which.empty()) break;
      (*draft)->next(which, tokens);
      for (std::size_t i = 0; i < which.size(); ++i) {
        const Served& s = *of[static_cast<std::size_t>(which[i])];
        off.compare(t.logits(k, s.first + s.known - 1), (*draft)->logits(static_cast<std::int64_t>(i)),
                    vocab);
      }
    }
    for (Served* s : of) s->cache.cut(s->known);
  }
}

// Every draft of the golden files (biases, per-head norms, windows, several layers, its own embeddings): what
// it says when it is served is what training's forward says of the same rows and steps.
TEST(resident_draft, ServedIsWhatIsTrained) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const Trained t = trained(path);
    for (const std::int64_t stride : {1, 4, 1000}) {
      const Off off = serve(t, ComputeType::kF32, stride);
      EXPECT_GT(off.compared, 0);
      EXPECT_LT(off.most, 2e-5);
    }
  }
}

TEST(resident_draft, InBf16UpToRounding) {
  const Trained t = trained(golden::files().front());
  const Off off = serve(t, ComputeType::kBf16, 3);
  EXPECT_GT(off.compared, 0);
  EXPECT_LT(off.most, 0.05);
}

TEST(resident_draft, EmbeddingsOfAnotherWidthAreRefused) {
  const Trained t = trained(golden::files().front());
  const auto draft = ResidentDraft::make(t.golden.weights, {1.0f, 2.0f}, ComputeType::kF32);
  ASSERT_FALSE(draft.ok());
  EXPECT_EQ(draft.status().code(), StatusCode::kConfig);
}

}  // namespace
}  // namespace eaglet
