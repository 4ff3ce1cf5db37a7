#pragma once

#include "monitor/activity.h"
#include "monitor/judgement.h"
#include "monitor/run_config.h"
#include "monitor/run_state.h"
#include "monitor/thresholds.h"

namespace eaglet::monitor {

/// What all four layers judge from.
struct Case {
  const RunSeries& series;
  const Activity& activity;
  const StateVerdict& state;
  const RunConfig& config;
  const Thresholds& thresholds;
};

/// Each returns its layer's judgements; signals that cannot be seen here come as unknown, or not at all when
/// the run has nothing of the kind. docs/watch.md lists them all.
Judgements judge_process(const Case& c);
Judgements judge_server(const Case& c);  // a server's own numbers: layer process
Judgements judge_hardware(const Case& c);
Judgements judge_link(const Case& c);     // PCIe: layer hardware
Judgements judge_host(const Case& c);     // memory, shared memory, disk, CPU quota: layer hardware
Judgements judge_tracked(const Case& c);  // as a tracker noted it, where nothing is measured: layer hardware
Judgements judge_useful_work(const Case& c);  // MFU, cost: layer hardware
Judgements judge_slow(const Case& c);         // growth, energy, the kernel's log: layer hardware
Judgements judge_configuration(const Case& c);
Judgements judge_ranks(const Case& c);  // those that were asked for: layer configuration
Judgements judge_data(const Case& c);   // vocabulary maps, data files, workers: layers configuration, process
Judgements judge_learning(const Case& c);
Judgements judge_outcome(const Case& c);  // plateau, clipping, what a server measured: layer learning
Judgements judge_alerts(const Case& c);   // what the trainer's own code raised in its tracker: layer learning

/// Share of real tokens in what the run works through: batches times length against tokens, else as the run
/// prints it; kNotKnown when nothing tells.
double packing_fill(const Case& c);

}  // namespace eaglet::monitor
