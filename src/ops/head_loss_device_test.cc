#include "device/threads.h"
#include "ops/device_test.h"
#include "ops/head_loss.h"
#include "ops/head_loss_cuda.h"
#include "ops/ops_test_util.h"

namespace eaglet {
namespace {

using test::DeviceFloats;
using test::DeviceInts;
using test::random_floats;
using test::relative_difference;

class HeadLossOnDevice : public test::OnDevice {};

constexpr std::int64_t kTeachers = 23, kHidden = 12, kTargetHidden = 10, kDraftVocab = 29, kVocab = 61;

// Three steps; some rows are metric only, some steps miss rows, and some teachers have no row at all.
struct Problem {
  HeadLossShape shape{kHidden, kTargetHidden, kDraftVocab, 3, 0};
  std::vector<float> states = random_floats(kTeachers * kTargetHidden, 1),
                     verifier_head = random_floats(kDraftVocab * kTargetHidden, 2),
                     whole_head = random_floats(kVocab * kTargetHidden, 4),
                     head = random_floats(kDraftVocab * kHidden, 3);
  std::vector<std::int32_t> draft_to_target;
  std::vector<std::vector<float>> xs, weight;
  std::vector<std::vector<std::int32_t>> teacher;
  explicit Problem(bool whole) {
    shape.whole_vocab = whole ? kVocab : 0;
    for (std::int32_t i = 0; i < kDraftVocab; ++i) draft_to_target.push_back(2 * i + i % 2);
    for (std::int32_t k = 0; k < 3; ++k) {
      teacher.emplace_back();
      weight.emplace_back();
      for (std::int32_t t = k; t < kTeachers; t += 1 + (k == 2 ? t % 2 : 0)) {
        if (t >= 8 && t < 13) continue;
        teacher.back().push_back(t);
        weight.back().push_back(t % 7 == 0 ? 0.0f : 0.01f * static_cast<float>(k + 1));
      }
      xs.push_back(random_floats(static_cast<std::int64_t>(teacher.back().size()) * kHidden,
                                 10 + static_cast<std::uint64_t>(k)));
    }
  }
};

struct Answer {
  std::vector<std::vector<float>> floats;  // loss and d_xs by step, d_head
  std::vector<std::vector<std::int32_t>> best = std::vector<std::vector<std::int32_t>>(3);
  std::vector<std::int32_t> teacher_best = std::vector<std::int32_t>(kTeachers, -1),
                            teacher_best_whole = teacher_best;
};

HeadLossInputs inputs_of(const Problem& p, const LinearWeight* verifier_head, const LinearWeight* head) {
  HeadLossInputs in;
  in.num_teachers = kTeachers;
  in.verifier_head = verifier_head;
  in.head = head;
  for (std::size_t k = 0; k < 3; ++k) {
    in.teacher.push_back(&p.teacher[k]);
    in.weight.push_back(&p.weight[k]);
  }
  return in;
}

void make_outputs(const Problem& p, std::vector<std::vector<float>>* loss, Answer* a, HeadLossOutputs* out) {
  loss->resize(3);
  for (std::size_t k = 0; k < 3; ++k) {
    (*loss)[k].assign(p.teacher[k].size(), std::nanf(""));
    a->best[k].assign(p.teacher[k].size(), -1);
    out->loss.push_back((*loss)[k].data());
    out->best.push_back(a->best[k].data());
  }
  out->teacher_best = a->teacher_best.data();
  out->teacher_best_whole = a->teacher_best_whole.data();
}

Answer on_host(const Problem& p, const std::vector<LossTerm>& terms) {
  Answer a;
  ProductWorkspace products;
  LinearWeight verifier_head(kDraftVocab, kTargetHidden, kTargetHidden, {ComputeType::kF32, true, false},
                             &products);
  LinearWeight head(kDraftVocab, kHidden, kHidden, {}, &products);
  verifier_head.load(p.verifier_head.data());
  head.load(p.head.data());
  HeadLossInputs in = inputs_of(p, &verifier_head, &head);
  in.teacher_states = p.states.data();
  in.whole_verifier_head = p.whole_head.data();
  in.draft_to_target = p.draft_to_target.data();
  HeadLossOutputs out;
  std::vector<std::vector<float>> loss, d_xs;
  make_outputs(p, &loss, &a, &out);
  for (std::size_t k = 0; k < 3; ++k) d_xs.emplace_back(p.xs[k].size());
  for (std::size_t k = 0; k < 3; ++k) {
    in.xs.push_back(p.xs[k].data());
    out.d_xs.push_back(d_xs[k].data());
  }
  std::vector<float> d_head(p.head.size(), 0.5f),
      scratch(static_cast<std::size_t>(head_loss_scratch_floats(p.shape, num_threads())));
  out.d_head = d_head.data();
  HeadLossWorkspace workspace;
  head_loss(p.shape, terms, in, out, scratch.data(), &workspace);
  a.floats = loss;
  a.floats.insert(a.floats.end(), d_xs.begin(), d_xs.end());
  a.floats.push_back(d_head);
  return a;
}

// chunk_teachers 0: through the public op.
Answer on_device(const Problem& p, const std::vector<LossTerm>& terms, std::int64_t chunk_teachers) {
  Answer a;
  const DeviceFloats states(p.states), verifier_values(p.verifier_head), whole(p.whole_head), values(p.head),
      d_head(std::vector<float>(p.head.size(), 0.5f));
  const DeviceInts draft_to_target(p.draft_to_target);
  ProductWorkspace products;
  LinearWeightOptions options;
  options.on_device = true;
  LinearWeight verifier_head(kDraftVocab, kTargetHidden, kTargetHidden, options, &products);
  LinearWeight head(kDraftVocab, kHidden, kHidden, options, &products);
  verifier_head.load(verifier_values.data());
  head.load(values.data());
  HeadLossInputs in = inputs_of(p, &verifier_head, &head);
  in.teacher_states = states.data();
  in.whole_verifier_head = whole.data();
  in.draft_to_target = draft_to_target.data();
  HeadLossOutputs out;
  std::vector<std::vector<float>> loss;
  make_outputs(p, &loss, &a, &out);
  std::vector<std::unique_ptr<DeviceFloats>> xs;
  for (std::size_t k = 0; k < 3; ++k) {
    xs.push_back(std::make_unique<DeviceFloats>(p.xs[k]));
    in.xs.push_back(xs[k]->data());
    out.d_xs.push_back(xs[k]->data());  // in place, as the draft does it
  }
  out.d_head = d_head.data();
  if (chunk_teachers > 0)
    cuda::head_loss_in_chunks(chunk_teachers, p.shape, terms, in, out);
  else
    head_loss(p.shape, terms, in, out, nullptr, nullptr);
  a.floats = loss;
  for (const auto& x : xs) a.floats.push_back(x->read());
  a.floats.push_back(d_head.read());
  return a;
}

void check(const Problem& p, const std::vector<LossTerm>& terms, std::int64_t chunk_teachers) {
  const Answer wanted = on_host(p, terms);
  Answer got;
  test::twice([&] {
    got = on_device(p, terms, chunk_teachers);
    return got.floats;
  });
  for (std::size_t i = 0; i < wanted.floats.size(); ++i)
    EXPECT_LT(relative_difference(got.floats[i], wanted.floats[i]), 5e-6) << "array " << i;
  EXPECT_EQ(got.best, wanted.best);
  for (const std::int32_t t : {0, 7, 13, 22}) {  // teachers that some row looks at
    EXPECT_EQ(got.teacher_best[static_cast<std::size_t>(t)],
              wanted.teacher_best[static_cast<std::size_t>(t)]);
    EXPECT_EQ(got.teacher_best_whole[static_cast<std::size_t>(t)],
              wanted.teacher_best_whole[static_cast<std::size_t>(t)]);
  }
}

const std::vector<LossTerm> kKlOnly = {LossTerm{}};
const std::vector<LossTerm> kSeveral = {{LossKind::kKl, 0.3},
                                        {LossKind::kCe, 0.2},
                                        {LossKind::kTv, 0.9},
                                        {LossKind::kRkl, 0.1},
                                        {LossKind::kJsd, 0.4}};

TEST_F(HeadLossOnDevice, AnyCutIntoChunksIsTheHosts) {
  for (const std::int64_t chunk : {0L, 1L, 5L}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
    check(Problem(false), chunk == 1 ? kKlOnly : kSeveral, chunk);
  }
}

TEST_F(HeadLossOnDevice, TheTeacherMayBeNormalisedOverTheWholeVocabulary) {
  check(Problem(true), kKlOnly, 0);
  check(Problem(true), kSeveral, 6);
}

TEST_F(HeadLossOnDevice, BestOverTheVocabularyIsTheHosts) {
  const std::int64_t n = 70, width = 7, vocab = 301;
  const std::vector<float> states = random_floats(n * width, 1), head = random_floats(vocab * width, 2);
  std::vector<std::int32_t> wanted(static_cast<std::size_t>(n)), got = wanted;
  std::vector<float> scratch(static_cast<std::size_t>(best_over_vocab_scratch_floats(vocab)));
  best_over_vocab(n, width, vocab, states.data(), head.data(), wanted.data(), scratch.data());
  const DeviceFloats states_(states), head_(head);
  best_over_vocab(n, width, vocab, states_.data(), head_.data(), got.data(), nullptr);
  EXPECT_EQ(got, wanted);
}

}  // namespace
}  // namespace eaglet
