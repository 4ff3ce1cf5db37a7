#pragma once

#include <functional>
#include <string>

#include "formats/json.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {

/// Colours a word by its level; the identity where there is no colour.
using Paint = std::function<std::string(const std::string& text, Level level)>;

/// The handful of lines `doctor` prints: state and what to do first, then the layers, the evidence, next.
/// `ascii`: nothing beyond ASCII.
std::string verdict_text(const Verdict& verdict, const Paint& paint, bool all_judgements);
/// docs/watch.md, "The JSON of a verdict".
Json verdict_json(const Verdict& verdict);
/// "EAGLET WARN - ... | power=251W;;;0;600 loss=6.11": one line for Nagios and its like.
std::string verdict_nagios(const Verdict& verdict);
Level state_level(RunState state);

}  // namespace eaglet::monitor
