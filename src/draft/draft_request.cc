#include <fmt/format.h>

#include "draft/draft_core.h"

namespace eaglet::draft_core {

Status check_request(const DraftWeights& weights, const VerifierTensors& verifier, const TttOptions& options,
                     std::int64_t max_rows) {
  EAGLET_RETURN_IF_ERROR(check_draft_config(weights.config));
  if (options.ttt_steps < 1 || options.ttt_steps > kMaxTttSteps)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("ttt_steps is {}; it must be 1 to {}", options.ttt_steps, kMaxTttSteps));
  if (!(options.row_sampling > 0 && options.row_sampling <= 1))
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("row_sampling is {}; it must be above 0 and at most 1", options.row_sampling));
  if (!options.step_weights.empty() &&
      options.step_weights.size() != static_cast<std::size_t>(options.ttt_steps))
    return Status(StatusCode::kInvalidArgument, fmt::format("{} step weights for {} drafting steps",
                                                            options.step_weights.size(), options.ttt_steps));
  if (options.chunk_rows < 0)
    return Status(StatusCode::kInvalidArgument, fmt::format("chunk_rows is {}", options.chunk_rows));
  if (options.losses.empty()) return Status(StatusCode::kInvalidArgument, "there is no loss to train with");
  if (max_rows < 1) return Status(StatusCode::kInvalidArgument, "a batch needs at least one row");
  if (weights.vocab.size() != weights.config.draft_vocab)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the draft vocabulary has {} ids, its configuration says {}",
                              weights.vocab.size(), weights.config.draft_vocab));
  if (weights.embed_tokens.empty() && weights.find("embed_tokens.weight") == nullptr &&
      weights.config.hidden != weights.config.target_hidden)
    return Status(StatusCode::kConfig,
                  fmt::format("the draft is {} wide and the target {}, so the target's embeddings do not fit",
                              weights.config.hidden, weights.config.target_hidden),
                  "", "give a draft with embeddings of its own, or make it as wide as the target");
  if (verifier.final_norm == nullptr || verifier.lm_head == nullptr ||
      (verifier.embed_tokens == nullptr && weights.embed_tokens.empty() &&
       weights.find("embed_tokens.weight") == nullptr))
    return Status(StatusCode::kInvalidArgument, "the target's embeddings, head and final norm are needed");
  return {};
}

}  // namespace eaglet::draft_core
