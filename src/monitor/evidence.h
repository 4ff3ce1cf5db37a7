#pragma once

#include "monitor/run_state.h"

namespace eaglet::monitor {

/// What the window shows: observations for progress and for a stall (monitoring by two independent kinds).
std::vector<Evidence> gather_evidence(const RunSeries& series, const Activity& activity,
                                      const Thresholds& thresholds);
/// Number of different kinds that speak for progress (or, with false, for a stall).
int kinds(const std::vector<Evidence>& evidence, bool progress);
bool has_kind(const std::vector<Evidence>& evidence, const std::string& kind, bool progress);

/// The rank that differs from the others: it uses no CPU while they do, or its device idles while theirs are
/// busy, or it is gone or stopped. nullptr when none stands out.
const RankActivity* odd_rank(const Activity& activity, const Thresholds& thresholds);
/// Busy devices at near-idle power: kernels that wait, as ranks inside a collective do.
bool spinning(const Activity& activity, const Thresholds& thresholds);

/// Why the log says nothing, with the proof (docs/watch.md, "A silent log"); empty when it speaks or when
/// there is none.
std::string explain_silence(const RunSeries& series, const Activity& activity, Phase phase,
                            const Thresholds& thresholds);

}  // namespace eaglet::monitor
