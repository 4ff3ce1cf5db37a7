#include "apps/keep_states.h"

#include <utility>

namespace eaglet::apps {

Status StatesKeeper::attach(const ExtractOptions& states, bool required, GenerateOptions* generate) {
  EAGLET_ASSIGN_OR_RETURN(generate->keep.layers, KeptStates::layers_of(states));
  EAGLET_ASSIGN_OR_RETURN(const ComputeType type, steady_compute_type(generate->compute_type));
  generate->keep.required = required;
  generate->keep.foresee = [states](const std::vector<std::int64_t>& prompt_tokens, std::int64_t max_tokens) {
    return KeptStates::foresee(states, prompt_tokens, max_tokens);
  };
  generate->keep.take = [this, states, type](const Conversation& row,
                                             std::vector<std::uint16_t> rows) -> Status {
    if (kept_ == nullptr) {
      EAGLET_ASSIGN_OR_RETURN(kept_, KeptStates::open(states, type));
    }
    return kept_->take(row, std::move(rows));
  };
  return {};
}

Result<std::int64_t> StatesKeeper::finish() {
  if (kept_ == nullptr) return std::int64_t{0};
  EAGLET_RETURN_IF_ERROR(kept_->finish());
  return kept_->documents();
}

}  // namespace eaglet::apps
