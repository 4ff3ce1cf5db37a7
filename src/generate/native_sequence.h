#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "generate/speculation.h"
#include "generate/token_sampler.h"
#include "target/kv_cache.h"
#include "verifier/generator.h"

namespace eaglet {

/// A request that the native engine answers, or has answered, with what it keeps of it.
struct NativeSequence {
  GenerationRequest request;
  GeneratedAnswer answer;
  SequenceCache cache;
  TokenSampler sampler;
  std::uint64_t cache_bytes = 0;
  std::optional<Speculated> speculated = std::nullopt;  // with a draft
  bool complete = false;  // all tokens are there; the last one may still have to go through the target

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
  std::int64_t answer_tokens() const { return static_cast<std::int64_t>(answer.tokens.size()); }
  std::int64_t tokens() const { return prompt_tokens() + answer_tokens(); }
  std::int32_t token(std::int64_t i) const {
    return i < prompt_tokens() ? request.prompt[static_cast<std::size_t>(i)]
                               : answer.tokens[static_cast<std::size_t>(i - prompt_tokens())];
  }
};
using NativeSequencePointer = std::unique_ptr<NativeSequence>;

}  // namespace eaglet
