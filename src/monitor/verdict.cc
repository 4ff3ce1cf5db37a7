#include "monitor/verdict.h"

#include <algorithm>
#include <cmath>

#include "monitor/judges.h"
#include "monitor/next_command.h"

namespace eaglet::monitor {
namespace {

void append(Judgements* all, Judgements more) {
  all->insert(all->end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

const Judgement* worst_of(const Verdict& verdict, Layer layer) {
  const Judgement* worst = nullptr;
  for (const Judgement& j : verdict.judgements) {
    if (j.layer != layer || (j.level != Level::kWarn && j.level != Level::kCrit)) continue;
    if (worst == nullptr || j.level > worst->level) worst = &j;
  }
  return worst;
}

/// Where the run is: step, total, time to go.
void set_progress(const RunSeries& series, const RunConfig& config, Verdict* verdict) {
  const RunView& last = series.views.back();
  verdict->step = verdict->activity.last_step;
  verdict->total_steps =
      series.log.total_steps > 0 ? series.log.total_steps : series.log.total_training_steps.value_or(0);
  if (verdict->total_steps <= 0)
    verdict->total_steps =
        static_cast<std::int64_t>(std::min(config.number("total_steps").value_or(0), 1e15));
  if (last.status && last.status->total > 0) verdict->total_steps = last.status->total;
  const double interval = series.log.step_interval();
  if (verdict->state.state == RunState::kRunning && verdict->total_steps > verdict->step && interval > 0)
    verdict->eta_seconds = interval * static_cast<double>(verdict->total_steps - verdict->step);
  verdict->up_seconds = verdict->activity.age_seconds;
}

/// The state's own cause, unless the state is fine and a layer is not.
void set_headline(const Thresholds& thresholds, Verdict* verdict) {
  verdict->headline = verdict->state.cause;
  verdict->advice = verdict->state.advice;
  verdict->next = verdict->state.next;
  for (const Judgement& j : verdict->judgements)
    if (j.name == "state" && (j.level == Level::kWarn || j.level == Level::kCrit)) return;
  const Judgement* first = nullptr;
  for (const Level wanted : {Level::kCrit, Level::kWarn})
    for (const Layer layer : kLayers)
      if (const Judgement* bad = worst_of(*verdict, layer);
          first == nullptr && bad != nullptr && bad->level == wanted)
        first = bad;
  if (first == nullptr) return;
  // Most of the work being padding outweighs every other warning: nothing else is worth as many hours.
  if (first->level == Level::kWarn)
    for (const Judgement& j : verdict->judgements)
      if (j.name == "packing" && j.level == Level::kWarn && j.value < thresholds.fill_headline) first = &j;
  verdict->headline = std::string(layer_word(first->layer)) + ": " + first->reason;
  verdict->advice = first->advice;
  verdict->advice_leads = !first->own_next && !first->advice.empty();
  verdict->next = first->next;
}

/// A bad finding that names no command gets the one by which its cause is to be seen.
void add_next_commands(const RunSeries& series, Verdict* verdict) {
  for (Judgement& j : verdict->judgements) {
    j.own_next = !j.next.empty();
    const bool bad = j.level == Level::kWarn || j.level == Level::kCrit;
    if (bad && !j.own_next) j.next = next_command(j, series, verdict->activity);
  }
}

/// What is worth a word in one line only when it is bad; --all tells it always.
bool is_detail(const Judgement& j) {
  return j.name == "log" || j.name == "run_wait" || j.name == "memory_pressure" || j.name == "cpu_pressure" ||
         j.name == "data";
}

}  // namespace

Verdict make_verdict(const RunSeries& series, const Thresholds& thresholds) {
  Verdict verdict;
  verdict.name = series.name;
  verdict.log_known = series.log_known;
  verdict.log_path = series.log_path;
  verdict.output_dir = series.output_dir;
  verdict.log = series.log;
  if (series.views.empty()) {
    verdict.state.cause = verdict.headline = "nothing was seen";
    return verdict;
  }
  verdict.wall = series.views.back().wall;
  verdict.activity = activity_of(series, thresholds);
  verdict.state = judge_state(series, verdict.activity, thresholds);
  const RunConfig config(series);
  const Case whole{series, verdict.activity, verdict.state, config, thresholds};
  append(&verdict.judgements, judge_process(whole));
  append(&verdict.judgements, judge_server(whole));
  const bool there = verdict.state.state != RunState::kDead && verdict.state.state != RunState::kFinished;
  if (there) append(&verdict.judgements, judge_hardware(whole));
  if (there) append(&verdict.judgements, judge_useful_work(whole));
  if (there) append(&verdict.judgements, judge_link(whole));
  append(&verdict.judgements, judge_tracked(whole));
  append(&verdict.judgements, judge_host(whole));
  append(&verdict.judgements, judge_slow(whole));
  append(&verdict.judgements, judge_configuration(whole));
  append(&verdict.judgements, judge_ranks(whole));
  append(&verdict.judgements, judge_data(whole));
  append(&verdict.judgements, judge_learning(whole));
  append(&verdict.judgements, judge_outcome(whole));
  append(&verdict.judgements, judge_alerts(whole));
  set_progress(series, config, &verdict);
  if (const double vocabulary = config.number("draft_vocab_size").value_or(0); vocabulary >= 2)
    verdict.uniform_loss = std::log(vocabulary);
  verdict.ttt_steps = config.number("ttt_steps").value_or(kNotKnown);
  verdict.max_seq_len = config.number("max_seq_len").value_or(kNotKnown);
  add_next_commands(series, &verdict);
  for (const Judgement& j : verdict.judgements) verdict.level = worse(verdict.level, j.level);
  set_headline(thresholds, &verdict);
  return verdict;
}

const std::string& first_thing_to_do(const Verdict& verdict) {
  return verdict.advice_leads ? verdict.advice : verdict.next;
}

int verdict_exit_code(const Verdict& verdict) {
  if (verdict.level == Level::kCrit) return 2;
  if (verdict.level == Level::kWarn) return 1;
  // What else is known and well does not make a run of unknown state well.
  return verdict.state.state == RunState::kUnknownState ? 3 : 0;
}

Level layer_level(const Verdict& verdict, Layer layer) {
  Level level = Level::kUnknown;
  for (const Judgement& j : verdict.judgements)
    if (j.layer == layer) level = worse(level, j.level);
  const bool state_unknown = layer == Layer::kProcess && verdict.state.state == RunState::kUnknownState;
  return state_unknown && level == Level::kOk ? Level::kUnknown : level;
}

std::vector<Evidence> deciding_evidence(const Verdict& verdict) {
  std::vector<Evidence> shown = verdict.state.evidence;
  const bool goes_on =
      verdict.state.state == RunState::kRunning || verdict.state.state == RunState::kStarting;
  if (goes_on) std::erase_if(shown, [](const Evidence& evidence) { return !evidence.progress; });
  return shown;
}

bool layer_judged(const Verdict& verdict, Layer layer) {
  for (const Layer below : kLayers) {
    if (below == layer) return true;
    if (layer_level(verdict, below) == Level::kCrit) return false;
  }
  return true;
}

std::string layer_text(const Verdict& verdict, Layer layer) {
  if (const Judgement* bad = worst_of(verdict, layer))
    return bad->advice.empty() || layer == Layer::kProcess ? bad->reason : bad->reason + " - " + bad->advice;
  std::string text;
  for (const Level wanted : {Level::kOk, Level::kUnknown}) {
    int shown = 0;
    for (const Judgement& j : verdict.judgements) {
      // Where the loss went is said however few points there are.
      const bool wanted_here = j.level == wanted || (wanted == Level::kOk && j.name == "trend");
      if (j.layer != layer || !wanted_here || shown >= 5 || is_detail(j)) continue;
      text += (text.empty() ? "" : ", ") + j.reason;
      ++shown;
    }
    if (!text.empty()) break;
  }
  return text.empty() ? "nothing to judge" : text;
}

}  // namespace eaglet::monitor
