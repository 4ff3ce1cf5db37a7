#pragma once

#include "evaluate/draft_length.h"
#include "evaluate/evaluate.h"
#include "evaluate/server_acceptance.h"
#include "formats/json.h"

namespace eaglet::apps {

/// What `eaglet evaluate --json` prints of each part; members keep their names.
Json evaluate_json(const EvaluateReport& report);
Json walk_json(const WalkedAcceptance& walked);
Json serve_json(const ServeReport& report);
Json server_json(const ServerAcceptance& server);
Json verdict_json(const ServerVerdict& verdict);
Json gains_json(const std::vector<LengthGain>& gains, const PassCosts& costs);

}  // namespace eaglet::apps
