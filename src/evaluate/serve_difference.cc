#include "evaluate/serve_difference.h"

#include <algorithm>
#include <cmath>

namespace eaglet {
namespace {

std::size_t first_difference(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(at.first - a.begin());
}

}  // namespace

Result<ServeDifference> explain_difference(const LogitsAfter& logits_after, const ServePrompt& prompt,
                                           const std::vector<std::int32_t>& plain,
                                           const std::vector<std::int32_t>& drafted) {
  ServeDifference difference;
  const std::size_t at = first_difference(plain, drafted);
  difference.id = prompt.id;
  difference.position = static_cast<std::int64_t>(at);
  if (at < plain.size()) difference.plain = plain[at];
  if (at < drafted.size()) difference.drafted = drafted[at];
  if (at >= plain.size() || at >= drafted.size())
    return difference;  // one went on behind the other's end: no tie
  std::vector<std::int32_t> shared = prompt.tokens;
  shared.insert(shared.end(), plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(at));
  EAGLET_ASSIGN_OR_RETURN(const auto stepwise, logits_after(shared, prompt.tokens.size()));
  EAGLET_ASSIGN_OR_RETURN(const auto together, logits_after(shared, shared.size()));
  for (std::size_t i = 0; i < stepwise.size(); ++i) {
    difference.rounding =
        std::max(difference.rounding, std::abs(static_cast<double>(stepwise[i]) - together[i]));
  }
  difference.plain_logit = stepwise[static_cast<std::size_t>(difference.plain)];
  difference.drafted_logit = stepwise[static_cast<std::size_t>(difference.drafted)];
  difference.excused_tie =
      std::abs(difference.plain_logit - difference.drafted_logit) <= 2 * difference.rounding;
  return difference;
}

}  // namespace eaglet
