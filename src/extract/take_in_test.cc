#include "extract/take_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/rng.h"
#include "base/test_directory.h"
#include "extract/teacher_inverse.h"
#include "formats/conversations.h"
#include "formats/safetensors.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kStates = EAGLET_TESTDATA "/states/";

TakeInOptions options_for(const std::string& from, const std::string& folder) {
  TakeInOptions options;
  options.from = from;
  options.states_path = kStates + folder;
  options.conversations_path = kStates + "conversations.jsonl";
  options.model_path = kStates + "target";
  options.store_path = test_directory(folder);
  options.wait_seconds = 0;
  return options;
}

/// State of document `document` at `place` from the truth, [tokens, 8].
std::vector<float> truth(std::size_t document, std::int64_t place) {
  const auto file = SafetensorsFile::open(kStates + "truth.safetensors");
  const auto all = *file->read_f32("states." + std::to_string(document));
  std::vector<float> states;
  for (std::size_t token = 0; token < all.size() / 72; ++token)
    for (std::size_t i = 0; i < 8; ++i)
      states.push_back(all[token * 72 + static_cast<std::size_t>(place) * 8 + i]);
  return states;
}

std::vector<float> normed(std::vector<float> states, double eps = 1e-6) {
  for (std::size_t row = 0; row < states.size(); row += 8) {
    double squares = 0;
    for (std::size_t i = 0; i < 8; ++i) squares += states[row + i] * states[row + i];
    for (std::size_t i = 0; i < 8; ++i)
      states[row + i] = static_cast<float>(states[row + i] / std::sqrt(squares / 8 + eps));
  }
  return states;
}

/// Documents come in any order; place of slot s of document d in the store.
void expect_states(const TakeInOptions& options, const std::vector<std::int32_t>& places, double tolerance,
                   bool last_normed) {
  const auto store = StoreReader::open(options.store_path);
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_EQ((*store)->documents().size(), 3u);
  EXPECT_EQ((*store)->header().aux_layers, places);
  EXPECT_TRUE((*store)->header().last_state_is_pre_norm);
  for (std::size_t d = 0; d < 3; ++d) {
    const auto document = (*store)->read(d);
    ASSERT_TRUE(document.ok()) << document.status().message();
    const auto number = static_cast<std::size_t>(document->id.back() - '0');
    for (std::size_t slot = 0; slot <= places.size(); ++slot) {
      const bool last = slot == places.size();
      std::vector<float> wanted = truth(number, last ? 8 : places[slot]);
      std::vector<float> found;
      for (std::size_t t = 0; t < wanted.size() / 8; ++t)
        for (std::size_t i = 0; i < 8; ++i)
          found.push_back(bf16_to_f32(document->states[(t * (places.size() + 1) + slot) * 8 + i]));
      if (last && last_normed) {
        wanted = normed(wanted);
        found = normed(found);
      }
      float largest = 0;
      for (const float v : wanted) largest = std::max(largest, std::fabs(v));
      for (std::size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(found[i], wanted[i], tolerance * largest) << number << " slot " << slot << " at " << i;
    }
  }
}

void take_in(const TakeInOptions& options) {
  NoProgress quiet;
  const auto report = take_in_states(options, quiet);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->used, 3) << report->summary();
}

TEST(TakeIn, VllmIsTakenBitForBit) {
  const TakeInOptions options = options_for("vllm", "vllm");
  take_in(options);
  expect_states(options, {2, 4, 5}, 0, false);
}

TEST(TakeIn, VllmFp8) {
  const TakeInOptions options = options_for("vllm", "vllm_fp8");
  take_in(options);
  expect_states(options, {2, 4, 5}, 0.0625, false);  // one scale a token: half a step of three mantissa bits
}

TEST(TakeIn, SpeculatorsOldFilesCountOutputs) {
  TakeInOptions options = options_for("speculators", "speculators_v1");
  take_in(options);
  expect_states(options, {3, 5, 6}, 0, false);
  options = options_for("speculators", "speculators_v0");
  take_in(options);
  expect_states(options, {3, 5, 6}, 0.01, true);
}

TEST(TakeIn, SpecForgeLastStateIsNormedAndPackedFilesAreRead) {
  TakeInOptions options = options_for("specforge", "specforge");
  options.conversations_path.clear();  // ids and masks are in the files
  NoProgress quiet;
  const auto report = take_in_states(options, quiet);
  ASSERT_TRUE(report.ok()) << report.status().message();
  expect_states(options, {2, 4, 5}, 0.01, true);
}

TEST(TakeIn, ModelOptimizerMustBeToldItsBackEnd) {
  TakeInOptions options = options_for("modelopt", "modelopt_hf");
  NoProgress quiet;
  EXPECT_THAT(take_in_states(options, quiet).status().message(), HasSubstr("--backend"));
  options.backend = "hf";
  take_in(options);
  expect_states(options, {2, 4, 5}, 0.01, true);
}

TEST(TakeIn, NemoLastStatesAreRebuiltFromProbabilities) {
  TakeInOptions options = options_for("nemo", "nemo");
  take_in(options);
  const auto store = StoreReader::open(options.store_path);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->header().aux_layers, (std::vector<std::int32_t>{2, 4, 5}));
  const auto rows = read_conversations(options.conversations_path);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto document = (*store)->read(i);
    ASSERT_TRUE(document.ok());
    const auto d = static_cast<std::size_t>(document->id.back() - '0');  // the samples are shuffled
    EXPECT_EQ(document->input_ids, rows->conversations[d].input_ids);
    EXPECT_EQ(document->loss_mask, rows->conversations[d].loss_mask);
    const auto tokens = document->input_ids.size();
    for (const std::size_t slot : {0u, 1u, 2u}) {
      const auto wanted = truth(d, std::vector<std::int64_t>{2, 4, 5}[slot]);
      for (std::size_t t = 0; t < tokens * 8; ++t)
        ASSERT_EQ(bf16_to_f32(document->states[(t / 8 * 4 + slot) * 8 + t % 8]), wanted[t])
            << d << " " << slot;
    }
    std::vector<float> last;
    for (std::size_t t = 8; t < tokens * 8; ++t)
      last.push_back(bf16_to_f32(document->states[(t / 8 * 4 + 3) * 8 + t % 8]));
    auto wanted = normed(truth(d, 8));
    wanted.erase(wanted.begin(), wanted.begin() + 8);  // the first token's is not in the cache
    last = normed(last);
    for (std::size_t t = 0; t < last.size(); ++t) ASSERT_NEAR(last[t], wanted[t], 0.03) << d << " at " << t;
  }
}

TEST(TakeIn, NemoWithoutConversationsAndWhatCannotBeRebuilt) {
  TakeInOptions options = options_for("nemo", "nemo");
  options.conversations_path.clear();
  take_in(options);
  const auto store = StoreReader::open(options.store_path);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->documents().front().id, "shard-000000-0");
  NoProgress quiet;
  const auto few = take_in_states(options_for("nemo", "nemo_topk"), quiet);
  EXPECT_EQ(few.status().code(), StatusCode::kConfig);
  EXPECT_THAT(few.status().message(), HasSubstr("8 largest"));
}

TEST(TeacherInverse, GivesTheTeacherBack) {
  constexpr std::int64_t kWidth = 48, kVocab = 400, kRows = 30;
  TargetWeights weights;
  Rng rng(3);
  for (std::int64_t i = 0; i < kVocab * kWidth; ++i)
    weights.embed_tokens.push_back(static_cast<float>(0.3 * rng.normal() + 0.1));
  for (std::int64_t i = 0; i < kWidth; ++i)
    weights.final_norm.push_back(static_cast<float>(0.5 + rng.uniform()));
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 300; ++i) ids.push_back(399 - i);
  const auto inverse = TeacherInverse::create(weights, kWidth, ids);
  ASSERT_TRUE(inverse.ok()) << inverse.status().message();
  const auto teacher = [&](const float* state) {
    double squares = 0;
    for (std::int64_t i = 0; i < kWidth; ++i) squares += double{state[i]} * state[i];
    const double scale = 1 / std::sqrt(squares / kWidth);
    std::vector<double> p;
    double sum = 0;
    for (const std::int32_t id : ids) {
      double logit = 0;
      for (std::int64_t i = 0; i < kWidth; ++i)
        logit += double{weights.embed_tokens[static_cast<std::size_t>(id * kWidth + i)]} * state[i] * scale *
                 weights.final_norm[static_cast<std::size_t>(i)];
      p.push_back(std::exp(logit));
      sum += p.back();
    }
    for (double& value : p) value /= sum;
    return p;
  };
  std::vector<float> probabilities, states, found;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) states.push_back(static_cast<float>(4 * rng.normal()));
  for (std::int64_t r = 0; r < kRows; ++r)
    for (const double p : teacher(states.data() + r * kWidth))
      probabilities.push_back(bf16_to_f32(f32_to_bf16(static_cast<float>(p))));
  double misfit = 1;
  ASSERT_TRUE(inverse->solve(probabilities, kRows, &found, &misfit).ok());
  EXPECT_LT(misfit, 0.003);
  for (std::int64_t r = 0; r < kRows; ++r) {
    const auto before = teacher(states.data() + r * kWidth), after = teacher(found.data() + r * kWidth);
    double divergence = 0;
    for (std::size_t i = 0; i < before.size(); ++i) divergence += before[i] * std::log(before[i] / after[i]);
    EXPECT_LT(divergence, 1e-5) << r;
  }
  // Another target's probabilities are told apart; a zero and too few ids are refused.
  for (float& p : probabilities) p = static_cast<float>(0.001 + rng.uniform());
  ASSERT_TRUE(inverse->solve(probabilities, kRows, &found, &misfit).ok());
  EXPECT_GT(misfit, 0.3);
  probabilities[310] = 0;
  EXPECT_THAT(inverse->solve(probabilities, kRows, &found, &misfit).what(), HasSubstr("row 1 "));
  ids.resize(48);
  EXPECT_EQ(TeacherInverse::create(weights, kWidth, ids).status().code(), StatusCode::kConfig);
}

TEST(TakeIn, SomeOfTheSlotsInEitherCounting) {
  TakeInOptions options = options_for("vllm", "vllm");
  options.captured_layer_ids = {1, 3, 4, 7};
  options.target_layer_ids = {1, 4};
  options.layer_convention = "output";
  take_in(options);
  expect_states(options, {2, 5}, 0, false);
  options.store_path = test_directory("missing");
  options.target_layer_ids = {2};
  NoProgress quiet;
  EXPECT_THAT(take_in_states(options, quiet).status().message(), HasSubstr("not captured"));
  options.captured_layer_ids = {1, 3, 4};
  EXPECT_THAT(take_in_states(options, quiet).status().message(), HasSubstr("4 slots, but 3 layers"));
}

TEST(TakeIn, InPlaceNoticesAFileThatChanged) {
  const std::string copy = test_directory("copy");
  std::filesystem::copy(kStates + "vllm", copy, std::filesystem::copy_options::recursive);
  TakeInOptions options = options_for("vllm", "vllm");
  options.states_path = copy;
  options.in_place = true;
  take_in(options);
  expect_states(options, {2, 4, 5}, 0, false);
  const auto store = StoreReader::open(options.store_path);
  EXPECT_TRUE((*store)->verify().ok()) << (*store)->verify().message();
  EXPECT_LT((*store)->bytes(), 4000u);
  std::string bytes = *read_file(copy + "/hs_0.safetensors");
  bytes[bytes.size() - 8] ^= 1;
  ASSERT_TRUE(write_file_atomic(copy + "/hs_0.safetensors", bytes).ok());
  EXPECT_EQ((*store)->verify().code(), StatusCode::kDataLoss);
  std::filesystem::remove(copy + "/hs_0.safetensors");
  EXPECT_EQ((*store)->verify().code(), StatusCode::kNotFound);
}

TEST(TakeIn, GoesOnWhereItStoppedAndTakesNothingTwice) {
  TakeInOptions options = options_for("vllm", "vllm");
  take_in(options);
  NoProgress quiet;
  const auto again = take_in_states(options, quiet);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->used, 0);
  EXPECT_EQ(again->already_done, 3);
}

}  // namespace
}  // namespace eaglet
