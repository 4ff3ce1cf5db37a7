#include "verifier/state_taker.h"

#include <cmath>

#include "formats/safetensors.h"
#include "tensor/dtype.h"
#include "verifier/sample_target.h"

namespace eaglet {
namespace {

const std::vector<std::int32_t> kLayers = {2, 15, 27};
constexpr double kLeastCosine = 0.999;

struct Reference {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<float>> slots;  // per slot [tokens, hidden]
};

/// testdata/extract/README.md: states by the transformers library.
Reference read_reference(const std::string& name) {
  Reference reference;
  auto file = SafetensorsFile::open(std::string(EAGLET_TESTDATA) + "/extract/" + name);
  if (!file.ok()) return reference;
  const auto ids = file->read_i64("input_ids");
  if (ids.ok()) reference.tokens.assign(ids->begin(), ids->end());
  for (const char* slot : {"state_2", "state_15", "state_27", "state_last"})
    reference.slots.push_back(*file->read_f32(slot));
  return reference;
}

std::vector<std::vector<std::uint16_t>> take(const std::vector<std::vector<std::int32_t>>& documents) {
  std::vector<std::vector<std::uint16_t>> all;
  std::int64_t longest = 0;
  for (const auto& document : documents)
    longest = std::max(longest, static_cast<std::int64_t>(document.size()));
  auto taker = StateTaker::create(*sample_target(), {kLayers, longest});
  EXPECT_TRUE(taker.ok()) << taker.status().message();
  for (const auto& document : documents) {
    auto states = (*taker)->take(document);
    EXPECT_TRUE(states.ok()) << states.status().message();
    all.push_back(std::move(*states));
  }
  return all;
}

double cosine(const float* a, const std::uint16_t* b, std::size_t n) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = a[i], y = bf16_to_f32(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / std::sqrt(aa * bb);
}

/// The smallest cosine over all tokens of one slot.
double least_cosine(const Reference& reference, const std::vector<std::uint16_t>& states, std::size_t slot) {
  const std::size_t hidden = 576, slots = reference.slots.size();
  double least = 1;
  for (std::size_t t = 0; t < reference.tokens.size(); ++t)
    least = std::min(least, cosine(reference.slots[slot].data() + t * hidden,
                                   states.data() + (t * slots + slot) * hidden, hidden));
  return least;
}

TEST(StateTaker, AgreesWithTransformersOnEveryTokenAndLayer) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  const Reference a = read_reference("p0000.safetensors"), b = read_reference("p0001.safetensors");
  ASSERT_EQ(a.tokens.size(), 50u);
  ASSERT_EQ(b.tokens.size(), 50u);
  // One after the other: a document must not see what ran before it.
  auto states = take({a.tokens, b.tokens});
  for (std::size_t slot = 0; slot < 4; ++slot) {
    const double least_a = least_cosine(a, states[0], slot), least_b = least_cosine(b, states[1], slot);
    EXPECT_GE(least_a, kLeastCosine) << "slot " << slot;
    EXPECT_GE(least_b, kLeastCosine) << "slot " << slot;
    // A fixture of the next layer would not pass: layers are told apart.
    EXPECT_LT(least_cosine(b, states[0], slot), 0.99);
  }
}

TEST(StateTaker, LongDocumentsCrossBatchBorders) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  const Reference a = read_reference("p0000.safetensors");
  ASSERT_EQ(a.tokens.size(), 50u);
  std::vector<std::int32_t> long_one;
  for (int i = 0; i < 13; ++i)
    long_one.insert(long_one.end(), a.tokens.begin(), a.tokens.end());  // 650 > one batch
  std::vector<std::vector<std::int32_t>> many = {long_one, {a.tokens[0]}, a.tokens};
  const auto states = take(many);
  EXPECT_EQ(states[0].size(), 650u * 4 * 576);
  EXPECT_EQ(states[1].size(), 1u * 4 * 576);
  for (std::size_t slot = 0; slot < 4; ++slot) {
    EXPECT_GE(least_cosine(a, states[0], slot), kLeastCosine);  // its first 50 tokens are document a
    EXPECT_GE(least_cosine(a, states[2], slot), kLeastCosine);  // after a longer one, at its own positions
  }
}

TEST(StateTaker, StatesAreAFunctionOfTheDocumentAlone) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  const Reference a = read_reference("p0000.safetensors"), b = read_reference("p0001.safetensors");
  const auto first = take({a.tokens, b.tokens}), turned = take({b.tokens, a.tokens});
  EXPECT_EQ(first[0], turned[1]);
  EXPECT_EQ(first[1], turned[0]);
  std::vector<std::int32_t> other(900, a.tokens[0]);  // a larger cache
  EXPECT_EQ(take({other, a.tokens})[1], first[0]);
}

TEST(StateTaker, RefusesLayersThatAreNotThere) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  for (const std::vector<std::int32_t>& ids : {std::vector<std::int32_t>{0}, {31}, {5, 5}, {9, 3}}) {
    auto taker = StateTaker::create(*sample_target(), {ids, 100});
    EXPECT_EQ(taker.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace eaglet
