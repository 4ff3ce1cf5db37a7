#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/compute_type.h"
#include "draft/draft_weights.h"
#include "ops/head_cache.h"

namespace eaglet {

/// Rows of a sequence whose target states are known: row p has the captured states of token p and the token
/// after it, as in training. At least one row.
struct DraftRows {
  HeadCache* cache = nullptr;        // holds the rows before; becomes longer by these
  std::vector<std::int32_t> tokens;  // [n] target ids
  const float* aux = nullptr;        // [n, A*Ht] captured states, in the order of aux_layers
};

/// A draft with its weights ready to multiply, for drafting token by token (docs/math/drafting.md). Not
/// thread-safe.
class ResidentDraft {
 public:
  /// `target_embeddings` [V, H] must outlive it; not read when the draft has its own. kConfig: a draft of
  /// another width without embeddings of its own.
  static Result<std::unique_ptr<ResidentDraft>> make(DraftWeights draft,
                                                     const std::vector<float>& target_embeddings,
                                                     ComputeType type);
  ~ResidentDraft();
  const DraftConfig& config() const;
  const DraftVocab& vocab() const;
  std::uint64_t bytes() const;
  HeadCacheShape cache_shape() const;

  /// Drafting step 0: takes in the sequences' rows. Then logits(i) speak of the token after the last row's of
  /// sequence i.
  void begin(const std::vector<DraftRows>& sequences);
  /// One more drafting step, for the sequences `which` of begin() (ascending), each with the token drafted
  /// for it before; a sequence left out once takes no further step. The i-th logits are of which[i]. The
  /// caches hold a row more for each step: cut them back to their length after begin() before the next one.
  void next(const std::vector<std::int32_t>& which, const std::vector<std::int32_t>& tokens);
  /// [Vd], by draft id. May be overwritten.
  float* logits(std::int64_t i);

 private:
  struct Impl;
  explicit ResidentDraft(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace eaglet
