#include "ops/attention.h"

#include <gtest/gtest.h>

#include "device/threads.h"
#include "ops/attention_test_util.h"
#include "ops/ops_test_util.h"

namespace eaglet {
namespace {

using test::Complex;
using test::random_floats;
using test::relative_difference;
using test::widen;

using Case = test::AttentionCase;
using Layout = test::AttentionLayout;
using test::attention_reference;
using test::make_attention_case;

struct Output {
  std::vector<float> out, gradient;  // gradient in flatten() order
};

Output run(const Case& c, const std::vector<float>& d_out) {
  const auto n = static_cast<std::int64_t>(c.key_of_query.size());
  std::vector<const float*> own_keys, own_values;
  std::vector<const std::int32_t*> own_index;
  std::vector<std::vector<float>> dk(c.own_keys.size()), dv(c.own_keys.size());
  std::vector<float*> dk_at, dv_at;
  for (std::size_t j = 0; j < c.own_keys.size(); ++j) {
    own_keys.push_back(c.own_keys[j].data());
    own_values.push_back(c.own_values[j].data());
    own_index.push_back(c.own_index[j].data());
    dk[j].assign(c.own_keys[j].size(), 0.0f);
    dv[j].assign(c.own_keys[j].size(), 0.0f);
    dk_at.push_back(dk[j].data());
    dv_at.push_back(dv[j].data());
  }
  const AttentionInputs in{
      n,           &c.spans,        c.key_of_query.data(), c.queries.data(), c.keys0.data(), c.values0.data(),
      c.own_steps, own_keys.data(), own_values.data(),     own_index.data()};
  const std::int64_t per_thread = attention_scratch_floats(c.shape, c.total_keys, c.own_steps);
  std::vector<float> scratch(static_cast<std::size_t>(per_thread * num_threads()));
  std::vector<float> out(c.queries.size()), lse(static_cast<std::size_t>(n * c.shape.num_heads));
  attention(c.shape, in, out.data(), lse.data(), scratch.data(), per_thread);
  std::vector<float> dq(c.queries.size()), dk0(c.keys0.size(), 0.0f), dv0(c.values0.size(), 0.0f);
  attention_backward(c.shape, in, out.data(), lse.data(),
                     {d_out.data(), dq.data(), dk0.data(), dv0.data(), dk_at.data(), dv_at.data()},
                     scratch.data(), per_thread);
  Output result{out, dq};
  for (const std::vector<float>* part : {&dk0, &dv0})
    result.gradient.insert(result.gradient.end(), part->begin(), part->end());
  for (const auto& part : dk) result.gradient.insert(result.gradient.end(), part.begin(), part.end());
  for (const auto& part : dv) result.gradient.insert(result.gradient.end(), part.begin(), part.end());
  return result;
}

void check(const Case& c) {
  Layout layout;
  const std::vector<float> all = flatten(c, &layout);
  const std::vector<float> d_out = random_floats(static_cast<std::int64_t>(c.queries.size()), 99);
  const Output got = run(c, d_out);
  EXPECT_LT(relative_difference(got.out, attention_reference(c, layout, widen<double>(all))), 2e-6);
  const auto loss = [&](const std::vector<Complex>& x) {
    Complex sum(0);
    const std::vector<Complex> out = attention_reference(c, layout, x);
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * static_cast<double>(d_out[i]);
    return sum;
  };
  EXPECT_LT(relative_difference(got.gradient, test::complex_step_gradient(loss, widen<Complex>(all))), 5e-6);
}

TEST(Attention, StepZero) {
  check(make_attention_case(4, 2, 6, 0, {9, 5}, 0));
}
TEST(Attention, OneTokenDocumentsAndOddSizes) {
  check(make_attention_case(3, 1, 5, 0, {1, 2, 1, 7}, 0));
}
TEST(Attention, OwnKeysOfLaterSteps) {
  check(make_attention_case(4, 2, 6, 0, {7, 4}, 3));
}
TEST(Attention, Window) {
  check(make_attention_case(2, 2, 4, 3, {11, 6}, 1));
}

// Longer than a tile of keys: the maximum and the sum go on from tile to tile. The gradient along a random
// direction, since one for every number would take minutes.
TEST(Attention, SeveralTilesOfKeys) {
  for (const std::int64_t window : {0, 5000}) {
    SCOPED_TRACE(window);
    const Case c = make_attention_case(4, 2, 4, window, {9000, 6, 4097}, 2, 331);
    Layout layout;
    const std::vector<float> all = flatten(c, &layout);
    const std::vector<float> d_out = random_floats(static_cast<std::int64_t>(c.queries.size()), 99);
    const Output got = run(c, d_out);
    EXPECT_LT(relative_difference(got.out, attention_reference(c, layout, widen<double>(all))), 2e-6);
    const std::vector<float> along = random_floats(static_cast<std::int64_t>(all.size()), 97);
    std::vector<Complex> moved = widen<Complex>(all);
    double want = 0, slope = 0, size = 0;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      moved[i] += Complex(0, 1e-30 * along[i]);
      slope += static_cast<double>(got.gradient[i]) * along[i];
      size += static_cast<double>(got.gradient[i]) * got.gradient[i];
    }
    const std::vector<Complex> out = attention_reference(c, layout, moved);
    for (std::size_t i = 0; i < out.size(); ++i) want += out[i].imag() / 1e-30 * d_out[i];
    EXPECT_NEAR(slope, want, 1e-5 * std::sqrt(size));
  }
}

TEST(Attention, ManyBlocksAgreeWithOneThread) {
  // More queries than one block holds, so that blocks of a document follow one another.
  const Case c = make_attention_case(6, 2, 8, 0, {400, 37}, 1);
  const std::vector<float> d_out = random_floats(static_cast<std::int64_t>(c.queries.size()), 98);
  set_num_threads(2);
  const Output two = run(c, d_out), again = run(c, d_out);
  set_num_threads(1);
  const Output one = run(c, d_out);
  set_num_threads(0);
  EXPECT_EQ(two.out, again.out);
  EXPECT_EQ(two.gradient, again.gradient);
  EXPECT_EQ(two.gradient,
            one.gradient);  // a document's kv head belongs to one thread: not even the rounding differs
  Layout layout;
  const std::vector<float> all = flatten(c, &layout);
  EXPECT_LT(relative_difference(two.out, attention_reference(c, layout, widen<double>(all))), 2e-6);
}

}  // namespace
}  // namespace eaglet
