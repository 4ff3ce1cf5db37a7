#include "draft/draft_reference.h"

#include <gtest/gtest.h>

#include <complex>
#include <functional>

#include "base/rng.h"

namespace eaglet {
namespace {

using Complex = std::complex<double>;

// A tiny draft with random weights and a batch of three documents and padding.
struct Case {
  DraftWeights draft;
  TttOptions options;
  std::vector<float> embed, verifier_head, verifier_norm, aux, last;
  std::vector<std::int32_t> ids, documents, positions;
  std::vector<std::uint8_t> mask;

  DraftInputs inputs() const {
    return {static_cast<std::int64_t>(ids.size()),
            ids.data(),
            documents.data(),
            positions.data(),
            mask.data(),
            aux.data(),
            last.data()};
  }
  VerifierTensors verifier() const {
    return {embed.data(), verifier_norm.data(), verifier_head.data(), draft.config.rms_norm_eps};
  }
};

std::vector<float> random_floats(std::int64_t n, std::uint64_t seed, double size, double around = 0) {
  Rng rng(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(around + size * rng.normal());
  return values;
}

DraftConfig tiny_config() {
  DraftConfig c;
  c.hidden = c.target_hidden = 8;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 4;
  c.intermediate = 12;
  c.vocab = 23;
  c.draft_vocab = 11;
  c.aux_layers = {0, 1, 2};
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 128;
  c.rope.theta = 100;
  c.sliding_window = {0};
  return c;
}

struct Variant {
  std::string name;
  std::function<void(DraftConfig*)> config;
  std::function<void(TttOptions*)> options;
  bool train_head = true, train_embeddings = false;
};

Case make_case(const Variant& variant) {
  Case k;
  DraftConfig c = tiny_config();
  if (variant.config) variant.config(&c);
  if (variant.options) variant.options(&k.options);
  EXPECT_TRUE(check_draft_config(c).ok()) << check_draft_config(c).message();
  k.draft.config = c;
  k.draft.table = parameter_table(c, variant.train_head, variant.train_embeddings);
  std::uint64_t seed = 1;
  for (const ParameterInfo& info : k.draft.table) {
    const bool gain = info.shape.size() == 1 && !info.name.ends_with(".bias");
    const std::vector<float> values = random_floats(info.elements, ++seed, gain ? 0.2 : 0.4, gain ? 1 : 0);
    k.draft.values.insert(k.draft.values.end(), values.begin(), values.end());
  }
  k.draft.vocab.target_vocab = c.vocab;
  for (std::int32_t i = 0; i < c.draft_vocab; ++i)
    k.draft.vocab.target_ids.push_back(c.draft_vocab == c.vocab ? i : 2 * i);
  k.embed = random_floats(c.vocab * c.hidden, 100, 0.5);
  if (c.hidden != c.target_hidden && !variant.train_embeddings) k.draft.embed_tokens = k.embed;
  k.verifier_head = random_floats(c.vocab * c.target_hidden, 101, 0.6);
  k.verifier_norm = random_floats(c.target_hidden, 102, 0.2, 1);
  Rng rng(103);
  const std::int32_t lengths[] = {9, 1, 6};
  for (std::int32_t d = 0; d < 3; ++d)
    for (std::int32_t p = 0; p < lengths[d]; ++p) {
      k.documents.push_back(d);
      k.positions.push_back(p + 1);
      k.mask.push_back(d == 1 || p == 1 || p == 2 || p > 4 ? 1 : 0);
    }
  for (int p = 0; p < 3; ++p) {
    k.documents.push_back(-1);
    k.positions.push_back(0);
    k.mask.push_back(0);
  }
  const auto rows = static_cast<std::int64_t>(k.documents.size());
  for (std::int64_t p = 0; p < rows; ++p)
    k.ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(c.vocab))));
  k.aux = random_floats(rows * c.num_aux() * c.target_hidden, 104, 1);
  k.last = random_floats(rows * c.target_hidden, 105, 1);
  return k;
}

template <class T>
ref::Draft<T> reference_of(const Case& k) {
  ref::Draft<T> reference;
  reference.c = k.draft.config;
  reference.rope =
      rope_table(k.draft.config.rope, k.draft.config.head_dim, k.draft.config.max_position_embeddings);
  reference.options = k.options;
  reference.verifier_head = k.verifier_head;
  reference.verifier_norm = k.verifier_norm;
  reference.target_ids = k.draft.vocab.target_ids;
  reference.w["embed_tokens.weight"] = std::vector<T>(k.embed.begin(), k.embed.end());
  for (const ParameterInfo& info : k.draft.table)
    reference.w[info.name] = std::vector<T>(k.draft.values.begin() + info.offset,
                                            k.draft.values.begin() + info.offset + info.elements);
  return reference;
}

std::vector<Variant> variants() {
  std::vector<Variant> all = {
      {"plain", {}, {}},
      {"frozen head", {}, {}, false},
      {"norm_before_residual", [](DraftConfig* c) { c->norm_before_residual = true; }, {}},
      {"norm_before_fc", [](DraftConfig* c) { c->norm_before_fc = true; }, {}},
      {"fc_norm", [](DraftConfig* c) { c->fc_norm = true; }, {}},
      {"norm_output", [](DraftConfig* c) { c->norm_output = true; }, {}},
      {"window", [](DraftConfig* c) { c->sliding_window = {3}; }, {}},
      {"two layers",
       [](DraftConfig* c) {
         c->num_layers = 2, c->sliding_window = {0, 3};
       },
       {}},
      {"two layers with everything",
       [](DraftConfig* c) {
         c->num_layers = 2, c->sliding_window = {0, 0}, c->attention_bias = c->mlp_bias = c->qk_norm = true;
         c->norm_output = c->fc_norm = c->norm_before_residual = true;
       },
       {},
       true,
       true},
      {"qk_norm", [](DraftConfig* c) { c->qk_norm = true; }, {}},
      {"biases", [](DraftConfig* c) { c->attention_bias = c->mlp_bias = true; }, {}},
      {"trained embeddings", {}, {}, true, true},
      {"trained embeddings, frozen head", {}, {}, false, true},
      {"narrower than the target", [](DraftConfig* c) { c->hidden = 6; }, {}},
      {"wider than the target, embeddings trained", [](DraftConfig* c) { c->hidden = 10; }, {}, true, true},
      {"two captured layers",
       [](DraftConfig* c) {
         c->aux_layers = {1, 2};
       },
       {}},
      {"full vocabulary", [](DraftConfig* c) { c->draft_vocab = c->vocab; }, {}},
      {"yarn",
       [](DraftConfig* c) {
         c->rope.type = "yarn", c->rope.factor = 4, c->rope.original_max_position_embeddings = 16;
       },
       {}},
      {"one step", {}, [](TttOptions* o) { o->ttt_steps = 1; }},
      {"five steps, decay", {}, [](TttOptions* o) { o->ttt_steps = 5, o->step_decay = 0.7; }},
      {"step weights",
       {},
       [](TttOptions* o) {
         o->step_weights = {1, 0, 2.5};
       }},
  };
  for (const char* loss :
       {"kl_div", "rkl", "jsd", "ce", "tv", "nla", "lk_hybrid", R"({"ce": 0.3, "tv": 0.7, "kl_div": 0.5})"})
    for (const TeacherVocab vocab : {TeacherVocab::kDraft, TeacherVocab::kWhole})
      all.push_back(
          {std::string(loss) + (vocab == TeacherVocab::kWhole ? ", whole vocabulary" : ""),
           {},
           [loss, vocab](TttOptions* o) { o->losses = *parse_loss(loss), o->teacher_vocab = vocab; }});
  return all;
}

double norm(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  return std::sqrt(sum);
}

// The derivative along random directions of every tensor, exact by a complex step, against the gradient.
void check_gradients(const Case& k, const DraftModel& model, const std::vector<float>& gradients) {
  constexpr double kStep = 1e-30;
  for (const ParameterInfo& info : k.draft.table) {
    if (!info.trainable) continue;
    SCOPED_TRACE(info.name);
    const float* gradient = gradients.data() + info.offset;
    for (std::uint64_t direction = 0; direction < 2; ++direction) {
      ref::Draft<Complex> reference = reference_of<Complex>(k);
      const std::vector<float> along = random_floats(info.elements, 1000 + direction, 1);
      double got = 0;
      for (std::int64_t i = 0; i < info.elements; ++i) {
        const auto at = static_cast<std::size_t>(i);
        reference.w[info.name][at] += Complex(0, kStep * along[at]);
        got += double{gradient[i]} * along[at];
      }
      const double want = reference.loss(k.inputs()).imag() / kStep;
      EXPECT_NEAR(got, want, 1e-5 * norm(gradient, info.elements) * norm(along.data(), info.elements) + 1e-7);
    }
  }
  EXPECT_GT(model.trainable_elements(), 0);
}

TEST(DraftReference, LossAndGradientsOfEveryVariant) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const Case k = make_case(variant);
    const double want = reference_of<double>(k).loss(k.inputs());
    for (const std::int64_t chunk : {0, 4}) {
      SCOPED_TRACE(chunk);
      TttOptions options = k.options;
      options.chunk_rows = chunk;
      auto model =
          DraftModel::create(k.draft, k.verifier(), options, static_cast<std::int64_t>(k.ids.size()), true);
      ASSERT_TRUE(model.ok()) << model.status().message();
      auto sums = (*model)->step(k.inputs(), true);
      ASSERT_TRUE(sums.ok()) << sums.status().message();
      if (options.step_weights.empty()) {
        EXPECT_NEAR(sums->loss(options.step_decay), want, 1e-5 * std::abs(want));
      }
      check_gradients(k, **model, (*model)->gradients().to_host());
    }
  }
}

}  // namespace
}  // namespace eaglet
