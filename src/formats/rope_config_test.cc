#include "formats/rope_config.h"

#include <gtest/gtest.h>

namespace eaglet {
namespace {

struct Pinned {
  const char* name;
  const char* config;
  int head_dim;
  std::vector<double> inv_freq;
  double attention_scaling;
};

// The numbers come from the transformers library (the configs of testdata/golden) and from the
// written-down cases of lost rope settings.
const Pinned kPinned[] = {
    {"llama3, base 500000",
     R"({"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
         "high_freq_factor":4.0,"original_max_position_embeddings":8192}})",
     8,
     {1, 0.0376060309, 0.000524846161, 6.64786987e-06},
     1},
    {"llama3, short context",
     R"({"rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,"factor":8.0,"low_freq_factor":1.0,
         "high_freq_factor":4.0,"original_max_position_embeddings":16}})",
     8,
     {0.5760563611984253, 0.004700753837823868, 0.00017677668074611574, 6.647869668086059e-06},
     1},
    {"base only inside rope_parameters",
     R"({"rope_parameters":{"rope_type":"default","rope_theta":1000000.0}})",
     8,
     {1, 0.0316227766, 0.001, 3.16227766e-05},
     1},
    {"plain, rope_scaling null",
     R"({"rope_theta":10000.0,"rope_scaling":null})",
     8,
     {1, 0.1, 0.01, 0.001},
     1},
    {"yarn",
     R"({"rope_theta":1000000.0,"rope_scaling":{"rope_type":"yarn","factor":4.0,
         "original_max_position_embeddings":4096,"beta_fast":32.0,"beta_slow":1.0}})",
     8,
     {1, 0.0197642371, 0.000250000012, 7.90569356e-06},
     1.13862944},
    {"yarn, context from max_position_embeddings",
     R"({"rope_theta":1000000.0,"max_position_embeddings":4096,"rope_scaling":{"type":"yarn","factor":4.0}})",
     8,
     {1, 0.0197642371, 0.000250000012, 7.90569356e-06},
     1.13862944},
    {"yarn, short context",
     R"({"rope_parameters":{"rope_type":"yarn","rope_theta":50000.0,"factor":4.0,
         "original_max_position_embeddings":16,"beta_fast":32.0,"beta_slow":1.0}})",
     8,
     {1.0, 0.016718508675694466, 0.0011180340079590678, 7.47674421290867e-05},
     1.1386294361119891},
    {"yarn with mscale, as DeepSeek and Kimi write it",
     R"({"rope_theta":50000.0,"rope_scaling":{"type":"yarn","factor":64.0,"original_max_position_embeddings":32,
         "beta_fast":32.0,"beta_slow":1.0,"mscale":1.0,"mscale_all_dim":1.0}})",
     24,
     {1.0, 0.20612114667892456, 0.0025742952711880207, 0.001044906792230904, 0.0004241276765242219,
      0.00017215350817423314, 6.987712549744174e-05, 2.8363136152620427e-05, 1.1512595847307239e-05,
      4.672965133067919e-06, 1.8967573396366788e-06, 7.69893688357115e-07},
     1},
    {"old key, linear",
     R"({"rope_theta":10000.0,"rope_scaling":{"type":"linear","factor":4.0}})",
     8,
     {0.25, 0.025, 0.0025, 0.00025},
     1},
    {"yarn, attention_factor given",
     R"({"rope_theta":1000000.0,"rope_scaling":{"rope_type":"yarn","factor":4.0,"attention_factor":0.5,
         "original_max_position_embeddings":4096}})",
     8,
     {1, 0.0197642371, 0.000250000012, 7.90569356e-06},
     0.5},
    // Without truncation the ramp runs from pair 0.87269 to pair 1.87612 (by hand: pair(r) = 4 ln(n / 2 pi r)
    // / ln b, n = 4096, b = 1e6, r = 32 and 1): pair 1 keeps 1 - 0.75 * (1 - 0.87269) / 1.00343 of its
    // frequency.
    {"yarn, no truncation",
     R"({"rope_theta":1000000.0,"rope_scaling":{"rope_type":"yarn","factor":4.0,"truncate":false,
         "original_max_position_embeddings":4096}})",
     8,
     {1, 0.0316227766 * 0.90484176, 0.001 * 0.25, 7.90569356e-06},
     1.13862944},
};

TEST(Rope, AnglesOfEverySpelling) {
  for (const Pinned& pinned : kPinned) {
    SCOPED_TRACE(pinned.name);
    auto rope = rope_from_json(*parse_json(pinned.config));
    ASSERT_TRUE(rope.ok()) << rope.status().message();
    const RopeTable table = rope_table(*rope, pinned.head_dim, 4096);
    ASSERT_EQ(table.inv_freq.size(), pinned.inv_freq.size());
    for (std::size_t i = 0; i < table.inv_freq.size(); ++i)
      EXPECT_NEAR(table.inv_freq[i] / pinned.inv_freq[i], 1, 1e-5) << "pair " << i;
    EXPECT_NEAR(table.attention_scaling, pinned.attention_scaling, 1e-6);
  }
}

TEST(Rope, SavingKeepsEverySetting) {
  for (const Pinned& pinned : kPinned) {
    auto rope = rope_from_json(*parse_json(pinned.config));
    ASSERT_TRUE(rope.ok());
    Json config;
    config["rope_parameters"] = rope_to_json(*rope);
    auto again = rope_from_json(config);
    ASSERT_TRUE(again.ok()) << pinned.name << again.status().message();
    EXPECT_TRUE(*again == *rope) << pinned.name;
  }
}

TEST(Rope, RefusesWhatItCannotKnow) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"rope_theta":10000.0,"rope_scaling":{"rope_type":"spiral","factor":2.0}})", "spiral"},
      {R"({"rope_theta":10000.0,"rope_parameters":{"rope_type":"default","rope_theta":1000000.0}})",
       "1000000.0"},
      {R"({"rope_scaling":{"rope_type":"linear","type":"yarn","factor":2}})", "contradicts"},
      {R"({"rope_scaling":{"rope_type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":4}})",
       "contradict"},
      {R"({"rope_scaling":{"rope_type":"yarn"}})", "factor"},
      {R"({"rope_scaling":{"rope_type":"llama3","factor":8}})", "original_max"},
      {R"({"rope_scaling":{"rope_type":"linear","factor":-1}})", "factor"},
      {R"({"rope_theta":"many"})", "rope_theta"},
      {R"({"rope_theta":0})", "rope_theta"},
      {R"({"rope_parameters":{"full_attention":{"rope_type":"default"}}})", "full_attention"},
      {R"({"partial_rotary_factor":0.5})", "partial_rotary_factor"},
      {R"({"rope_scaling":[1]})", "object"},
      {R"([])", "object"},
  };
  for (const auto& [config, named] : bad) {
    auto rope = rope_from_json(*parse_json(config));
    ASSERT_FALSE(rope.ok()) << config;
    EXPECT_EQ(rope.status().code(), StatusCode::kConfig) << config;
    EXPECT_NE(rope.status().what().find(named), std::string::npos) << rope.status().message();
    EXPECT_FALSE(rope.status().todo().empty());
  }
}

TEST(Rope, AgreeingSpellingsAreOne) {
  auto rope = rope_from_json(*parse_json(
      R"({"rope_theta":7e4,"rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":70000},
          "rope_scaling":{"type":"linear","factor":2.0}})"));
  ASSERT_TRUE(rope.ok()) << rope.status().message();
  EXPECT_EQ(rope->theta, 70000);
  EXPECT_EQ(rope->factor, 2);
}

}  // namespace
}  // namespace eaglet
