#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "verifier/target.h"

namespace eaglet {

struct StateTakerOptions {
  std::vector<std::int32_t> aux_layers;  // ascending, in 1..n: id k = the residual stream after k layers
  std::int64_t longest_document = 2048;  // in tokens
};

/// Runs documents through the target and keeps layer outputs; the head is never computed. Each document runs
/// alone, from an empty cache: its states are a function of its tokens and of nothing else, bit for bit, so
/// that a store that was gone on with, and training without a store, have the same numbers. Nor is it slower:
/// in a shared batch the attention also computes what is then masked. Not thread-safe.
class StateTaker {
 public:
  /// `target` must outlive it. kInvalidArgument (a layer id), kNoSpace.
  static Result<std::unique_ptr<StateTaker>> create(const Target& target, const StateTakerOptions& options);
  virtual ~StateTaker() = default;
  /// States of `tokens` (1 to longest_document): bf16 [tokens, aux layers + 1, hidden], the aux layers in
  /// order, then the last state before the final norm. kConfig when the architecture does not name its layer
  /// outputs.
  virtual Result<std::vector<std::uint16_t>> take(const std::vector<std::int32_t>& tokens) = 0;
};

}  // namespace eaglet
