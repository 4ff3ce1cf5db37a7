#pragma once

#include <string>

#include "monitor/activity.h"
#include "monitor/judgement.h"
#include "monitor/run_config.h"
#include "monitor/run_state.h"

namespace eaglet::monitor {

/// The answer to "is it healthy": a state, four judged layers, what is wrong first, what to do next.
struct Verdict {
  std::string name;
  double wall = kNotKnown, up_seconds = kNotKnown;
  StateVerdict state;
  Activity activity;
  Judgements judgements;  // by layer, in order
  Level level = Level::kUnknown;
  std::string headline;       // after the state's word: the first bad layer, or what goes on
  std::string advice;         // what to change; may be empty
  std::string next;           // the next command to run
  bool advice_leads = false;  // the headline is about what to change: the command only shows more of it
  std::int64_t step = -1, total_steps = 0;
  double eta_seconds = kNotKnown;
  LogFacts log;
  bool log_known = false;
  std::string log_path, output_dir;
  double uniform_loss = kNotKnown;  // ln(draft vocabulary): what loss_0 of a uniform guess is
  double ttt_steps = kNotKnown, max_seq_len = kNotKnown;
};

Verdict make_verdict(const RunSeries& series, const Thresholds& thresholds);

/// 0 ok, 1 warn, 2 crit, 3 unknown.
int verdict_exit_code(const Verdict& verdict);
/// What the first line points to.
const std::string& first_thing_to_do(const Verdict& verdict);
/// The worst judgement of a layer; unknown when nothing of it is known.
Level layer_level(const Verdict& verdict, Layer layer);
/// One line for a layer: the worst finding, or what is well.
std::string layer_text(const Verdict& verdict, Layer layer);
/// The evidence that made the state: of a run that goes on what speaks for progress, else all.
std::vector<Evidence> deciding_evidence(const Verdict& verdict);
/// Layers above a critical one are "not judged yet".
bool layer_judged(const Verdict& verdict, Layer layer);

}  // namespace eaglet::monitor
