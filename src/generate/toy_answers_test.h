#pragma once

// Small targets (testdata/golden_targets) and what a generator answers with them. For tests only.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "generate/native_generator.h"

namespace eaglet {

using Answers = std::map<std::size_t, GeneratedAnswer>;

// One with grouped heads, one with a window, one with latent attention and experts.
inline const char* const kModels[] = {"llama_tied", "mistral_window", "kimi_k2_like", "qwen3_moe"};

inline std::string folder_of(const std::string& model) {
  return std::string(EAGLET_TESTDATA) + "/golden_targets/" + model;
}

inline std::unique_ptr<ResidentTarget> load(const std::string& model) {
  auto target = ResidentTarget::load(folder_of(model), ComputeType::kF32,
                                     [](std::int64_t, std::int64_t) { return Status(); });
  EXPECT_TRUE(target.ok()) << target.status().what();
  return target.ok() ? std::move(*target) : nullptr;
}

inline std::vector<GenerationRequest> some_requests() {
  std::vector<GenerationRequest> all;
  for (std::size_t i = 0; i < 9; ++i) {
    GenerationRequest request;
    request.tag = i;
    for (std::size_t t = 0; t <= i * 5 % 13; ++t)
      request.prompt.push_back(static_cast<std::int32_t>((i * 17 + t * 7) % 90));
    request.max_tokens = static_cast<std::int64_t>(1 + i * 7 % 12);
    request.seed = static_cast<std::uint32_t>(i);
    all.push_back(request);
  }
  return all;
}

inline NativeGeneratorOptions usual() {
  NativeGeneratorOptions options;
  options.parallel = 4;
  options.cache_bytes = std::uint64_t{1} << 30;
  options.ends = [](std::int32_t) { return false; };
  return options;
}

inline Status run(ResidentTarget* target, const NativeGeneratorOptions& options,
                  std::vector<GenerationRequest> requests, Answers* answers, int* most_at_once = nullptr) {
  const auto generator = make_native_generator(target, options);
  std::size_t next = 0;
  return generator->run(
      [&]() -> std::optional<GenerationRequest> {
        if (next == requests.size()) return std::nullopt;
        return requests[next++];
      },
      [&](const GeneratedAnswer& one) {
        EXPECT_FALSE(answers->contains(one.tag));
        (*answers)[one.tag] = one;
        return Status();
      },
      [&](std::int64_t, int busy) {
        if (most_at_once != nullptr) *most_at_once = std::max(*most_at_once, busy);
        return Status();
      });
}

inline Answers answers_of(ResidentTarget* target, const NativeGeneratorOptions& options,
                          const std::vector<GenerationRequest>& requests, int* most_at_once = nullptr) {
  Answers answers;
  const Status status = run(target, options, requests, &answers, most_at_once);
  EXPECT_TRUE(status.ok()) << status.what();
  EXPECT_EQ(answers.size(), requests.size());
  return answers;
}

inline std::vector<std::vector<std::int32_t>> tokens_of(const Answers& answers) {
  std::vector<std::vector<std::int32_t>> all;
  for (const auto& [tag, answer] : answers) all.push_back(answer.tokens);
  return all;
}

}  // namespace eaglet
