#include "ops/attention.h"
#include "ops/attention_test_util.h"
#include "ops/device_test.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

using test::AttentionCase;
using test::Complex;
using test::DeviceFloats;
using test::DeviceInts;
using test::make_attention_case;
using test::random_floats;
using test::relative_difference;
using test::widen;

class AttentionOnDevice : public test::OnDevice {};

using FloatArrays = std::vector<std::unique_ptr<DeviceFloats>>;

template <class T, class Array>
std::vector<T*> pointers(const std::vector<std::unique_ptr<Array>>& arrays) {
  std::vector<T*> all;
  for (const auto& array : arrays) all.push_back(array->data());
  return all;
}

FloatArrays on_device(const std::vector<std::vector<float>>& arrays, bool zero) {
  FloatArrays all;
  for (const std::vector<float>& a : arrays)
    all.push_back(std::make_unique<DeviceFloats>(zero ? std::vector<float>(a.size(), 0.0f) : a));
  return all;
}

// out, log_sum_exp, and the gradients in flatten()'s order.
std::vector<std::vector<float>> run(const AttentionCase& c, const std::vector<float>& d_out) {
  const auto n = static_cast<std::int64_t>(c.key_of_query.size());
  const DeviceFloats queries(c.queries), keys0(c.keys0), values0(c.values0), d_out_(d_out);
  const DeviceInts key_of_query(c.key_of_query);
  const FloatArrays own_keys = on_device(c.own_keys, false), own_values = on_device(c.own_values, false),
                    d_own_keys = on_device(c.own_keys, true), d_own_values = on_device(c.own_values, true);
  std::vector<std::unique_ptr<DeviceInts>> own_index;
  for (const auto& index : c.own_index) own_index.push_back(std::make_unique<DeviceInts>(index));
  const auto own_keys_at = pointers<const float>(own_keys), own_values_at = pointers<const float>(own_values);
  const auto own_index_at = pointers<const std::int32_t>(own_index);
  const auto d_own_keys_at = pointers<float>(d_own_keys), d_own_values_at = pointers<float>(d_own_values);
  const AttentionInputs in{
      n,           &c.spans,           key_of_query.data(),  queries.data(),     keys0.data(), values0.data(),
      c.own_steps, own_keys_at.data(), own_values_at.data(), own_index_at.data()};
  const DeviceFloats out(static_cast<std::int64_t>(c.queries.size())), lse(n * c.shape.num_heads),
      d_queries(static_cast<std::int64_t>(c.queries.size())),
      d_keys0(std::vector<float>(c.keys0.size(), 0.0f)),
      d_values0(std::vector<float>(c.values0.size(), 0.0f));
  attention(c.shape, in, out.data(), lse.data(), nullptr, 0);
  attention_backward(c.shape, in, out.data(), lse.data(),
                     {d_out_.data(), d_queries.data(), d_keys0.data(), d_values0.data(), d_own_keys_at.data(),
                      d_own_values_at.data()},
                     nullptr, 0);
  std::vector<std::vector<float>> results = {out.read(), lse.read(), d_queries.read()};
  const auto append = [&](const std::vector<float>& part) {
    results[2].insert(results[2].end(), part.begin(), part.end());
  };
  append(d_keys0.read());
  append(d_values0.read());
  for (const auto& array : d_own_keys) append(array->read());
  for (const auto& array : d_own_values) append(array->read());
  return results;
}

// Forward against the reference in double, gradients against its complex step.
void check(const AttentionCase& c) {
  SCOPED_TRACE(testing::Message() << c.shape.num_heads << "/" << c.shape.num_kv_heads << " heads of "
                                  << c.shape.head_dim << ", window " << c.shape.window << ", own steps "
                                  << c.own_steps);
  test::AttentionLayout layout;
  const std::vector<float> all = test::flatten(c, &layout);
  const std::vector<float> d_out = random_floats(static_cast<std::int64_t>(c.queries.size()), 99);
  const auto results = test::twice([&] { return run(c, d_out); });
  EXPECT_LT(relative_difference(results[0], test::attention_reference(c, layout, widen<double>(all))), 2e-6);
  const auto loss = [&](const std::vector<Complex>& x) {
    const std::vector<Complex> out = test::attention_reference(c, layout, x);
    Complex sum(0);
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * static_cast<double>(d_out[i]);
    return sum;
  };
  EXPECT_LT(relative_difference(results[2], test::complex_step_gradient(loss, widen<Complex>(all))), 5e-6);
}

TEST_F(AttentionOnDevice, TwoDocuments) {
  check(make_attention_case(4, 2, 6, 0, {9, 5}, 0));
}
TEST_F(AttentionOnDevice, OneTokenDocumentsAndGroupsOfThree) {
  check(make_attention_case(3, 1, 5, 0, {1, 2, 1, 7}, 0));
}
TEST_F(AttentionOnDevice, OwnKeysOfLaterSteps) {
  check(make_attention_case(4, 2, 6, 0, {7, 4}, 3));
}
TEST_F(AttentionOnDevice, Windows) {
  check(make_attention_case(2, 2, 4, 3, {11, 6}, 1));
  check(make_attention_case(2, 1, 3, 1, {5}, 2));
}

// What the host's op says, which attention_test.cc holds to the reference.
std::vector<std::vector<float>> on_host(const AttentionCase& c, const std::vector<float>& d_out) {
  const auto n = static_cast<std::int64_t>(c.key_of_query.size());
  std::vector<const float*> own_keys, own_values;
  std::vector<const std::int32_t*> own_index;
  std::vector<std::vector<float>> dk, dv;
  std::vector<float*> dk_at, dv_at;
  for (std::size_t j = 0; j < c.own_keys.size(); ++j) {
    own_keys.push_back(c.own_keys[j].data());
    own_values.push_back(c.own_values[j].data());
    own_index.push_back(c.own_index[j].data());
    dk.emplace_back(c.own_keys[j].size(), 0.0f);
    dv.emplace_back(c.own_keys[j].size(), 0.0f);
  }
  for (std::size_t j = 0; j < dk.size(); ++j) {
    dk_at.push_back(dk[j].data());
    dv_at.push_back(dv[j].data());
  }
  const AttentionInputs in{
      n,           &c.spans,        c.key_of_query.data(), c.queries.data(), c.keys0.data(), c.values0.data(),
      c.own_steps, own_keys.data(), own_values.data(),     own_index.data()};
  std::vector<float> scratch(1 << 22), out(c.queries.size()),
      lse(static_cast<std::size_t>(n * c.shape.num_heads)), dq(c.queries.size()), dk0(c.keys0.size(), 0.0f),
      dv0(c.values0.size(), 0.0f);
  const std::int64_t per_thread = attention_scratch_floats(c.shape, c.total_keys, c.own_steps);
  attention(c.shape, in, out.data(), lse.data(), scratch.data(), per_thread);
  attention_backward(c.shape, in, out.data(), lse.data(),
                     {d_out.data(), dq.data(), dk0.data(), dv0.data(), dk_at.data(), dv_at.data()},
                     scratch.data(), per_thread);
  for (const auto* part : {&dk0, &dv0}) dq.insert(dq.end(), part->begin(), part->end());
  for (const auto* parts : {&dk, &dv})
    for (const auto& part : *parts) dq.insert(dq.end(), part.begin(), part.end());
  return {out, lse, dq};
}

// Longer than a tile of rows and of keys, documents that meet within one.
TEST_F(AttentionOnDevice, TilesAreTheHosts) {
  const AttentionCase cases[] = {
      make_attention_case(2, 1, 8, 0, {40, 1, 37}, 0, 1), make_attention_case(6, 2, 10, 0, {70, 3}, 2, 3),
      make_attention_case(1, 1, 130, 0, {19, 20}, 1, 1),  make_attention_case(5, 1, 9, 20, {66, 17}, 1, 2),
      make_attention_case(1, 1, 256, 0, {33}, 0, 2),
  };
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(testing::Message() << c.shape.num_heads << " heads of " << c.shape.head_dim << ", "
                                    << c.total_keys << " keys");
    const std::vector<float> d_out = random_floats(static_cast<std::int64_t>(c.queries.size()), 99);
    const auto results = test::twice([&] { return run(c, d_out); });
    const auto wanted = on_host(c, d_out);
    EXPECT_LT(relative_difference(results[0], wanted[0]), 2e-6);
    EXPECT_LT(relative_difference(results[1], wanted[1]), 2e-6);
    EXPECT_LT(relative_difference(results[2], wanted[2]), 5e-6);
  }
}

// Scores far beyond the range of exp, in every order of size along the keys.
TEST_F(AttentionOnDevice, LargeScoresDoNotOverflow) {
  AttentionCase c = make_attention_case(2, 2, 4, 0, {40}, 1, 1);
  for (float& q : c.queries) q *= 60;
  const std::vector<float> d_out = random_floats(static_cast<std::int64_t>(c.queries.size()), 99);
  const auto results = run(c, d_out);
  const auto wanted = on_host(c, d_out);
  EXPECT_LT(relative_difference(results[0], wanted[0]), 5e-5);
  EXPECT_LT(relative_difference(results[1], wanted[1]), 1e-5);
}

// bf16 on tensor cores. What is rounded is rounded before, so that the host's op sees the same numbers; what
// is left are the weights, which are rounded for the products with values, and the gradients of scores: 2^-9
// each.
void round_all(std::vector<float>* values) {
  for (float& value : *values) value = bf16_to_f32(f32_to_bf16(value));
}
AttentionCase rounded(AttentionCase c) {
  for (auto* part : {&c.queries, &c.keys0, &c.values0}) round_all(part);
  c.shape.device_type = ComputeType::kBf16;
  return c;
}
void check_rounded(const AttentionCase& c) {
  SCOPED_TRACE(testing::Message() << c.shape.num_heads << "/" << c.shape.num_kv_heads << " heads of "
                                  << c.shape.head_dim << ", window " << c.shape.window << ", " << c.total_keys
                                  << " keys, own steps " << c.own_steps);
  std::vector<float> d_out = random_floats(static_cast<std::int64_t>(c.queries.size()), 99);
  round_all(&d_out);
  const auto results = test::twice([&] { return run(c, d_out); });
  const auto wanted = on_host(c, d_out);
  EXPECT_LT(relative_difference(results[0], wanted[0]), 3e-3);
  EXPECT_LT(relative_difference(results[1], wanted[1]), 1e-5);
  EXPECT_LT(relative_difference(results[2], wanted[2]), 4e-3);
}

TEST_F(AttentionOnDevice, TilesOfBf16OverDocuments) {
  check_rounded(rounded(make_attention_case(4, 2, 64, 0, {40, 1, 87}, 0, 1)));
  check_rounded(rounded(make_attention_case(1, 1, 7, 0, {5, 1, 2, 66}, 0, 1)));
}
TEST_F(AttentionOnDevice, TilesOfBf16WithOwnKeys) {
  check_rounded(rounded(make_attention_case(6, 2, 50, 0, {90, 3}, 2, 3)));
  check_rounded(rounded(make_attention_case(16, 1, 34, 0, {9}, 3, 1)));
}
TEST_F(AttentionOnDevice, TilesOfBf16InAWindow) {
  check_rounded(rounded(make_attention_case(2, 1, 128, 20, {97, 33}, 1, 1)));
  check_rounded(rounded(make_attention_case(1, 1, 16, 1, {70}, 0, 1)));
}
TEST_F(AttentionOnDevice, TilesOfBf16OfWideHeads) {
  check_rounded(rounded(make_attention_case(1, 1, 256, 0, {70}, 1, 1)));
  check_rounded(rounded(make_attention_case(3, 1, 131, 0, {17, 9}, 1, 2)));
}
// Keys of the call begin in the middle of the arrays, and some at the end no query sees.
TEST_F(AttentionOnDevice, TilesOfBf16OfPartOfTheKeys) {
  AttentionCase c = rounded(make_attention_case(2, 1, 16, 0, {30, 70}, 1, 1));
  const auto gone = static_cast<std::size_t>(c.spans[0].query_end);
  c.spans.erase(c.spans.begin());
  c.spans[0].query_begin = 0;
  c.spans[0].query_end = 50;
  c.key_of_query.assign(c.key_of_query.begin() + static_cast<std::ptrdiff_t>(gone),
                        c.key_of_query.begin() + static_cast<std::ptrdiff_t>(gone) + 50);
  c.queries.resize(50 * 2 * 16);
  c.own_index[0].resize(50);
  check_rounded(c);
}
TEST_F(AttentionOnDevice, TilesOfBf16WithLargeScores) {
  AttentionCase c = make_attention_case(2, 2, 8, 0, {100}, 1, 1);
  for (float& q : c.queries) q *= 60;
  check_rounded(rounded(c));
}

}  // namespace
}  // namespace eaglet
