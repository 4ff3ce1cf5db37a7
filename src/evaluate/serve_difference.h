#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "evaluate/evaluate.h"
#include "evaluate/serve_prompts.h"

namespace eaglet {

/// The target's logits after `tokens`, [vocab]: the first `together` tokens in one pass, the rest one by one.
using LogitsAfter =
    std::function<Result<std::vector<float>>(const std::vector<std::int32_t>& tokens, std::size_t together)>;

/// Both logits at the place where two answers part, from plain passes over the tokens they share, and whether
/// they are a tie within rounding there.
Result<ServeDifference> explain_difference(const LogitsAfter& logits_after, const ServePrompt& prompt,
                                           const std::vector<std::int32_t>& plain,
                                           const std::vector<std::int32_t>& drafted);

}  // namespace eaglet
