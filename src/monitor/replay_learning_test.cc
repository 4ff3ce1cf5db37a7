// What a run was set to do, and what it learns.
#include "monitor/replay_world.h"

namespace eaglet::monitor {
namespace {

using Run = std::function<void(double t, Second*)>;
using Touch = std::function<void(double t, RunView*, RunSeries*)>;

Scenario fault(const char* name, const char* expected, const char* judgement, Level level, double at,
               double within, Run run, Touch touch = nullptr) {
  return {.name = name,
          .fault = expected,
          .fault_at = at,
          .named_within = within,
          .length = at + within + 60,
          .run = std::move(run),
          .named = [=](const Verdict& v) { return warned(v, judgement, level); },
          .touch = std::move(touch)};
}

/// A draft for a 7168 wide target on four GPUs: what its trainer writes down, nothing wrong in it.
Json good_config() {
  return {{"hidden_size", 7168},
          {"num_attention_heads", 64},
          {"num_key_value_heads", 64},
          {"head_dim", 128},
          {"intermediate_size", 18432},
          {"draft_vocab_size", 32000},
          {"target_vocab_size", 163840},
          {"num_aux", 3},
          {"ttt_steps", 3},
          {"max_seq_len", 8192},
          {"train_samples", 37312},
          {"real_tokens", 80200000},
          {"train_batches", 10600},
          {"epochs", 4},
          {"total_steps", 10600},
          {"world_size", 4},
          {"num_workers", 1},
          {"trainable_params", 1190920192},
          {"total_params", 2594701312},
          {"covered_share", 0.985},
          {"scheduler_type", "none"},
          {"lr", 1e-4},
          {"compute_type", "bf16"}};
}

/// What a record says beside its losses.
struct Printed {
  double tokens_per_second = 20000, data_wait = 0.004, grad_norm = 0.8;
};
/// Losses and accuracy of three depths as they come down from a fresh start.
std::string record(double t, const Printed& printed = {}) {
  const double fall = 3.2 * (1 - std::exp(-t / 400));
  return fmt::format(
      " loss_0={:.3f} loss_1={:.3f} loss_2={:.3f} full_acc_0={:.3f} full_acc_1={:.3f} grad_norm={} "
      "tokens_per_s={} fetch_frac={}",
      10.4 - fall, 10.6 - fall, 10.8 - fall, 0.02 + 0.08 * fall, 0.01 + 0.05 * fall, printed.grad_norm,
      printed.tokens_per_second, printed.data_wait);
}

/// A good run whose configuration differs in these.
Run with(Json changes) {
  return [changes = std::move(changes)](double t, Second* s) {
    s->config = good_config();
    s->config.update(changes);
    s->extra = record(t);
  };
}
/// A good run whose records say `bad` from second 300 on.
Run then_prints(const Printed& bad) {
  return [=](double t, Second* s) {
    s->config = good_config();
    s->extra = record(t, t < 300 ? Printed() : bad);
  };
}

Touch data_seen(DataSeen data) {
  return [=](double, RunView*, RunSeries* series) { series->data = data; };
}

DataSeen good_data() {
  DataSeen data;
  data.maps_path = "out/checkpoint-40/model.safetensors";
  data.states_path = "data/hs_0.safetensors";
  data.draft_ids = data.target_ids = 32000;
  data.maps_agree = true;
  data.layers = 4;
  data.hidden = 7168;
  data.rows = data.tokens = 1444;
  return data;
}

void add_size(std::vector<Scenario>* all) {
  all->push_back(fault("a third of the states is missing", "warn, data_size", "data_size", Level::kWarn, 0,
                       15, with({{"data_bytes", 80200000.0 * 57344 * 0.66}})));
}

void add_alerts(std::vector<Scenario>* all) {
  const auto raised = [](const char* level) {
    return [=](double t, RunView* view, RunSeries* series) {
      if (t >= 300) series->alerts = {{level, "grad norm", "88 at rank 2", 300, view->wall - (t - 300)}};
    };
  };
  all->push_back(fault(
      "the trainer raises an error in Trackio", "crit, alert", "alert", Level::kCrit, 300, 15,
      [](double, Second*) {}, raised("error")));
  all->push_back(fault(
      "the trainer warns in Trackio", "warn, alert", "alert", Level::kWarn, 300, 15, [](double, Second*) {},
      raised("warn")));
}

void add_declared(std::vector<Scenario>* all) {
  Scenario good = fault("everything told, nothing wrong", nullptr, "", Level::kOk, 0, 0, with(Json::object()),
                        data_seen(good_data()));
  good.length = 900;
  all->push_back(good);
  all->push_back(fault("asked for 8192, runs with 4096", "warn, declared", "declared", Level::kWarn, 0, 15,
                       with({{"max_seq_len", 4096}}), [](double, RunView* view, RunSeries*) {
                         for (ProcessView& process : *view->processes)
                           if (process.rank >= 0) process.command += " --max-seq-len 8192";
                       }));
  all->push_back(fault("the plan ends before the data", "warn, steps", "steps", Level::kWarn, 0, 15,
                       with({{"total_steps", 6500}})));
  all->push_back(fault("LR reaches its end at 40 % of the run", "warn, lr_horizon", "lr_horizon",
                       Level::kWarn, 0, 15, with({{"scheduler_total_steps", 4240}})));
  all->push_back(fault("a third of the LR that was asked for", "warn, lr", "lr", Level::kWarn, 0, 15,
                       with({{"lr", 3e-4}})));
  all->push_back(fault("the configuration is of another run", "warn, artifact", "artifact", Level::kWarn, 0,
                       15, with(Json::object()), [](double, RunView*, RunSeries* series) {
                         series->config_path = "out/train_config.json";
                         series->config_mtime = kStart - 86400;
                         series->run_began = kStart;
                       }));
  const Touch writes_none = [](double, RunView*, RunSeries* series) { series->output_dir = "out"; };
  Scenario none = fault(
      "a trainer that writes no configuration", nullptr, "", Level::kOk, 0, 0, [](double, Second*) {},
      writes_none);
  none.length = 300;
  all->push_back(none);
  all->push_back(fault(
      "speculators wrote no run.yaml", "warn, artifact", "artifact", Level::kWarn, 115, 15,
      [](double, Second*) {},
      [=](double t, RunView* view, RunSeries* series) {
        writes_none(t, view, series);
        for (ProcessView& process : *view->processes)
          if (process.rank >= 0) process.command = "python -m speculators.train --save-path out";
      }));
  all->push_back(fault(
      "the configuration is cut off", "warn, artifact", "artifact", Level::kWarn, 0, 15,
      [](double, Second*) {},
      [](double, RunView*, RunSeries* series) {
        series->output_dir = "out";
        series->config_error = "out/train_config.json cannot be read as JSON";
      }));
  all->push_back(
      fault("4 of 8 ranks here", "warn, ranks", "ranks", Level::kWarn, 0, 15, with({{"world_size", 8}})));
  all->push_back(fault("4 ranks, 3 GPUs hold memory", "warn, ranks", "ranks", Level::kWarn, 0, 15,
                       with(Json::object()), [](double, RunView* view, RunSeries*) {
                         DeviceView& unused = view->devices->back();
                         unused.used_bytes = 4e8;
                         unused.busy_pct = 0;
                         unused.power_w = 80;
                         view->device_processes->back().device = 2;
                       }));
}

void add_data(std::vector<Scenario>* all) {
  all->push_back(fault("a vocabulary that covers 81 %", "warn, coverage", "coverage", Level::kWarn, 0, 15,
                       with({{"covered_share", 0.81}})));
  DataSeen maps = good_data();
  maps.target_ids = 31990;
  all->push_back(fault("d2t and t2d of different lengths", "crit, vocabulary_maps", "vocabulary_maps",
                       Level::kCrit, 0, 15, with(Json::object()), data_seen(maps)));
  maps = good_data();
  maps.maps_agree = false;
  all->push_back(fault("draft ids out of order", "crit, vocabulary_maps", "vocabulary_maps", Level::kCrit, 0,
                       15, with(Json::object()), data_seen(maps)));
  DataSeen layers = good_data();
  layers.layers = 6;
  all->push_back(fault("data of 6 layers for 3 + last", "warn, data_layers", "data_layers", Level::kWarn, 0,
                       15, with(Json::object()), data_seen(layers)));
  DataSeen other = good_data();
  other.hidden = 4096;
  all->push_back(fault("states of another target", "crit, data_layers", "data_layers", Level::kCrit, 0, 15,
                       with(Json::object()), data_seen(other)));
  DataSeen rows = good_data();
  rows.rows = 1443;
  all->push_back(fault("a row of states is missing", "crit, data_layers", "data_layers", Level::kCrit, 0, 15,
                       with(Json::object()), data_seen(rows)));
  all->push_back(fault("nothing was loaded for a warm start", "warn, warm_start", "warm_start", Level::kWarn,
                       0, 15, [](double t, Second* s) {
                         with(Json::object())(t, s);
                         s->says = "warm start: 0 loaded, 15 skipped";
                       }));
  all->push_back(fault("the draft head is frozen", "warn, parameters", "parameters", Level::kWarn, 0, 15,
                       with({{"trainable_params", 961544192}})));
  all->push_back(fault("logits of a length that fits no GPU", "warn, memory_estimate", "memory_estimate",
                       Level::kWarn, 0, 15,
                       with({{"max_seq_len", 262144}, {"train_batches", 332}, {"total_steps", 332}})));
  all->push_back(fault("the disk gives the states too slowly", "warn, bandwidth", "bandwidth", Level::kWarn,
                       300, 60, then_prints({.data_wait = 0.4})));
  Scenario told =
      fault("computes in bf16", "told, precision", "precision", Level::kOk, 0, 15, with(Json::object()));
  all->push_back(told);
}

void add_learning(std::vector<Scenario>* all) {
  all->push_back(fault("MFU of 1 %", "warn, mfu", "mfu", Level::kWarn, 300, 30,
                       then_prints({.tokens_per_second = 600})));
  Scenario apart = fault("a quarter of the tokens that the power pays for", "warn, mfu: power", "mfu",
                         Level::kWarn, 300, 30, then_prints({.tokens_per_second = 8500}));
  apart.named = [](const Verdict& v) {
    return warned(v, "mfu", Level::kWarn) &&
           reason_of(v, "mfu").find("less than the power") != std::string::npos;
  };
  all->push_back(apart);
  all->push_back(fault("a spike each 40 steps", "warn, spikes", "spikes", Level::kWarn, 300, 300,
                       [](double t, Second* s) {
                         const double noise = 0.02 * std::sin(12.9898 * t);
                         const bool spike = t >= 300 && std::fmod(t, 40) < 2;
                         s->loss = fmt::format("{:.3f}", (spike ? 7.5 : 3.0) + noise);
                       }));
  all->push_back(fault(
      "drafting steps that are not chained", "warn, depth_order", "depth_order", Level::kWarn, 0, 160,
      [](double t, Second* s) { s->extra = fmt::format(" loss_0={0:.3f} loss_1={0:.3f}", 9 - 0.005 * t); }));
  all->push_back(fault("accuracy rises with depth", "warn, depth_order", "depth_order", Level::kWarn, 0, 160,
                       [](double, Second* s) { s->extra = " full_acc_0=0.31 full_acc_1=0.33"; }));
  all->push_back(fault("held-out acceptance falls, loss too", "warn, acceptance", "acceptance", Level::kWarn,
                       300, 30, [](double t, Second* s) {
                         s->extra = record(t);
                         s->extra += fmt::format(" val/acceptance_length={:.2f}", t < 300 ? 2.5 : 2.3);
                       }));
  all->push_back(fault("a third slower than at its best", "warn, speed", "speed", Level::kWarn, 300, 60,
                       then_prints({.tokens_per_second = 13000})));
  all->push_back(
      fault("a step takes half as long again", "warn, speed", "speed", Level::kWarn, 300, 60,
            [](double t, Second* s) { s->extra = fmt::format(" step_ms={}", t < 300 ? 915 : 1370); }));
  all->push_back(fault("waits for data a fifth of the time", "warn, data_wait", "data_wait", Level::kWarn,
                       300, 60, then_prints({.data_wait = 0.2})));
  all->push_back(fault("gradients twenty times as large", "warn, grad_norm", "grad_norm", Level::kWarn, 300,
                       30, then_prints({.grad_norm = 16})));
  all->push_back(fault("held-out loss rises, training loss falls", "warn, overfit", "overfit", Level::kWarn,
                       300, 30, [](double t, Second* s) {
                         s->extra = record(t) +
                                    fmt::format(" val_loss={:.3f}", t < 300 ? 5.0 : 5.0 + 0.01 * (t - 300));
                       }));
}

}  // namespace

std::vector<Scenario> configuration_scenarios() {
  std::vector<Scenario> all;
  add_declared(&all);
  add_alerts(&all);
  add_size(&all);
  add_data(&all);
  return all;
}

std::vector<Scenario> learning_scenarios() {
  std::vector<Scenario> all;
  add_learning(&all);
  return all;
}

}  // namespace eaglet::monitor
