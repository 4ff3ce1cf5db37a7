#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "verifier/target.h"

namespace eaglet {

struct StateTakerOptions {
  std::vector<std::int32_t> aux_layers;  // ascending, in 1..n: id k = the residual stream after k layers
  std::int64_t longest_document = 2048;  // in tokens
};

/// States of one document: bf16 [tokens, aux layers + 1, hidden], the aux layers in order, then the last
/// state before the final norm.
struct TakenStates {
  std::size_t tag = 0;
  std::vector<std::uint16_t> states;
};

/// Runs documents through the target and keeps layer outputs. Documents are packed end to end into batches,
/// each with its own sequence and positions; the head is never computed. Not thread-safe.
class StateTaker {
 public:
  using Done = std::function<Status(TakenStates)>;
  /// `target` must outlive it. kInvalidArgument (a layer id), kNoSpace.
  static Result<std::unique_ptr<StateTaker>> create(const Target& target, const StateTakerOptions& options,
                                                    Done done);
  virtual ~StateTaker() = default;
  /// Takes a document up (at least 1 token). `done` is called, in the order of add(), for every document
  /// whose last batch has run. kConfig when the architecture does not name its layer outputs.
  virtual Status add(std::size_t tag, const std::vector<std::int32_t>& tokens) = 0;
  /// Runs what is left.
  virtual Status finish() = 0;
};

}  // namespace eaglet
