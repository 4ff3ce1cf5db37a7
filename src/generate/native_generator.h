#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "draft/resident_draft.h"
#include "target/resident_target.h"
#include "verifier/generator.h"

namespace eaglet {

struct NativeGeneratorOptions {
  int parallel = 64;              // sequences decoded together, as far as their caches fit
  std::uint64_t cache_bytes = 0;  // for all caches and kept states together
  std::int64_t prompt_rows =
      512;  // of new prompts in a step, so that a step stays short; a longer prompt is alone
  SamplingOptions sampling = {};
  std::function<bool(std::int32_t)> ends;  // does this token end an answer?
  /// Layers whose states are kept with every answer (GeneratedAnswer::states), in this order, then the last
  /// one; empty: none. An answer's last token then goes through the target too.
  std::vector<std::int32_t> kept_layers;
  /// Proposes tokens that the target then checks together; nullptr: none. A draft of this target that
  /// outlives the generator.
  ResidentDraft* draft = nullptr;
  std::int64_t draft_length = 3;
};

/// The native engine's generator: a sequence's room in the caches is put aside when it begins (prompt and
/// longest answer), a place that becomes free is taken at once, prompts go through the target whole beside
/// the tokens of those that answer. A failure of run() with kNoSpace: a request does not fit cache_bytes.
/// `target` must outlive it.
std::unique_ptr<Generator> make_native_generator(ResidentTarget* target,
                                                 const NativeGeneratorOptions& options);

}  // namespace eaglet
