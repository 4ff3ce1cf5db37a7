#pragma once

#include <cstdint>
#include <vector>

#include "draft/resident_draft.h"
#include "generate/token_sampler.h"

namespace eaglet {

/// What speculative decoding keeps beside a sequence.
struct Speculated {
  HeadCache cache;                   // the draft's; holds rows of tokens that are in the answer for good
  std::vector<float> pending;        // captured states of the rows after those [n, A*Ht]
  std::vector<DraftedToken> tokens;  // proposed for the pass under way
};

/// Lets a draft propose the next tokens of many sequences at once, from the states that the target's own
/// passes gave (docs/math/drafting.md).
class Speculation {
 public:
  /// `draft` must outlive it.
  Speculation(ResidentDraft* draft, std::int64_t draft_length) : draft_(draft), length_(draft_length) {}

  const DraftVocab& vocab() const { return draft_->vocab(); }
  std::int64_t draft_length() const { return length_; }
  /// For a sequence of at most `longest` tokens.
  Speculated begin(std::int64_t longest) const;
  std::uint64_t bytes(std::int64_t longest) const;

  /// Makes room for the states of `rows` more rows, which capture() then fills.
  void expect_rows(std::int64_t rows, Speculated* sequence) const;
  /// States x [rows, Ht] of the newest rows after `layers` layers; nothing when the draft does not read them.
  void capture(std::int64_t layers, std::int64_t rows, const float* x, Speculated* sequence) const;
  /// Forgets the newest rows: their tokens were refused.
  void forget_rows(std::int64_t rows, Speculated* sequence) const;

  /// A sequence that wants tokens: all its tokens, the newest of them not yet through the target, and how
  /// many to draft at most.
  struct Asking {
    Speculated* sequence = nullptr;
    TokenSampler* sampler = nullptr;
    std::vector<std::int32_t> following;  // the token after each pending row
    std::int64_t most = 1;
  };
  /// Fills sequence->tokens of all.
  void draft(const std::vector<Asking>& all);

 private:
  std::size_t row_width() const;
  void take_drafted(const std::vector<Asking>& all, const std::vector<std::int32_t>& which);
  ResidentDraft* draft_;
  std::int64_t length_;
};

}  // namespace eaglet
