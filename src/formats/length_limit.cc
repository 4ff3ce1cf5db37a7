#include "formats/length_limit.h"

#include <algorithm>

namespace eaglet {

std::int64_t least_useful_limit(const Conversation& conversation) {
  const auto& mask = conversation.loss_mask;
  if (mask.size() < 2) return 0;
  const auto first = std::find(mask.begin() + 1, mask.end(), 1);
  return first == mask.end() ? 0 : first - mask.begin() + 1;
}

LimitResult cut_to_limit(std::int64_t limit, Conversation* conversation) {
  const std::int64_t needed = least_useful_limit(*conversation);
  if (needed == 0) return LimitResult::kNothingSupervised;
  if (limit <= 0 || static_cast<std::int64_t>(conversation->input_ids.size()) <= limit)
    return LimitResult::kWhole;
  if (needed > limit) return LimitResult::kNothingLeft;
  conversation->input_ids.resize(static_cast<std::size_t>(limit));
  conversation->loss_mask.resize(static_cast<std::size_t>(limit));
  conversation->finish_reason = "length";
  return LimitResult::kCut;
}

}  // namespace eaglet
