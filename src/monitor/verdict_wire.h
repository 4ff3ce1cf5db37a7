#pragma once

#include <map>
#include <string>

#include "formats/json.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {

/// The number of this form. Both ends of a connection must speak the same.
constexpr int kWireVersion = 1;

/// A verdict on its way to another machine, whole enough to be drawn there: what verdict_text(), the terminal
/// view, the page and the metrics need. Of the curves only samples that were not sent before (`sent`: the
/// newest record of each metric) go along.
Json verdict_to_wire(const Verdict& verdict, std::map<std::string, std::int64_t>* sent);

/// Takes what arrived into `verdict`, which holds what came before: new samples are added to its curves.
/// Fields that are missing or of another type keep what they had; numbers outside their range are refused.
/// kDataLoss when it is no verdict at all.
Status verdict_from_wire(const Json& wire, Verdict* verdict);

}  // namespace eaglet::monitor
