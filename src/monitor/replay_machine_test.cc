// The machine under a run: its GPUs, memory, disks, cores and what else lives there.
#include "monitor/replay_world.h"
#include "monitor/trackio_machine.h"

namespace eaglet::monitor {
namespace {

using Touch = std::function<void(double t, RunView*, RunSeries*)>;

/// From second 300 on `touch` makes it so; `judgement` must then say so.
Scenario fault(const char* name, const char* expected, const char* judgement, Level level, double within,
               Touch touch) {
  return {.name = name,
          .fault = expected,
          .fault_at = 300,
          .named_within = within,
          .length = 300 + within + 60,
          .run = [](double, Second*) {},
          .named = [=](const Verdict& v) { return warned(v, judgement, level); },
          .touch =
              [=](double t, RunView* view, RunSeries* series) {
                if (t >= 300) touch(t - 300, view, series);
              }};
}

Scenario healthy(const char* name, double length, std::function<void(double t, Second*)> run,
                 Touch touch = nullptr) {
  return {.name = name,
          .fault = nullptr,
          .fault_at = 0,
          .named_within = 0,
          .length = length,
          .run = std::move(run),
          .named = [](const Verdict&) { return false; },
          .touch = std::move(touch)};
}

void add_host(std::vector<Scenario>* all) {
  all->push_back(fault("more threads than cores", "warn, run_wait", "run_wait", Level::kWarn, 60, nullptr));
  all->back().touch = [](double t, RunView* view, RunSeries*) {
    for (ProcessView& process : *view->processes) process.run_wait_seconds = 0.6 * std::max(0.0, t - 300);
  };
  all->push_back(
      fault("the container's CPU quota stops it", "warn, cpu_quota", "cpu_quota", Level::kWarn, 60, nullptr));
  all->back().touch = [](double t, RunView* view, RunSeries*) {
    view->host.quota_cores = 2;
    view->host.throttled_seconds = 0.3 * std::max(0.0, t - 300);
  };
  all->push_back(fault("everything in the container waits for a core", "warn, cpu_pressure", "cpu_pressure",
                       Level::kWarn, 60, nullptr));
  all->back().touch = [](double t, RunView* view, RunSeries*) {
    view->host.pressure_of_container = true;
    view->host.cpu_some_seconds = 0.5 * t;
    view->host.cpu_full_seconds = 0.4 * std::max(0.0, t - 300);
  };
  all->push_back(fault("pages are freed and read again", "warn, memory_pressure", "memory_pressure",
                       Level::kWarn, 60, nullptr));
  all->back().touch = [](double t, RunView* view, RunSeries*) {
    view->host.memory_some_seconds = 0.3 * std::max(0.0, t - 300);
    view->host.memory_full_seconds = 0.1 * std::max(0.0, t - 300);
  };
  all->push_back(fault("memory of the machine at 98 %", "crit, memory", "memory", Level::kCrit, 5,
                       [](double, RunView* view, RunSeries*) { view->host.memory_available = 10e9; }));
  all->push_back(fault("memory of the container at 98 %", "crit, cgroup_memory", "cgroup_memory",
                       Level::kCrit, 5, [](double, RunView* view, RunSeries*) {
                         view->host.cgroup_bytes = 98e9;
                         view->host.cgroup_limit = 100e9;
                       }));
  all->push_back(
      fault("/dev/shm is full", "crit, shm", "shm", Level::kCrit, 5, [](double, RunView* view, RunSeries*) {
        view->host.shm_bytes = 61e6;
        view->host.shm_total = 64e6;
      }));
  all->push_back(fault("a worker killed for memory, the run goes on", "crit, oom_kill", "oom_kill",
                       Level::kCrit, 5, nullptr));
  all->back().touch = [](double t, RunView* view, RunSeries*) { view->host.oom_kills = t >= 300 ? 1 : 0; };
  all->push_back(fault("the run is swapped out", "warn, swap", "swap", Level::kWarn, 10,
                       [](double since, RunView* view, RunSeries*) {
                         view->processes->front().swap_bytes = 1e6 + 5e6 * since;
                       }));
  all->push_back(fault("no room for two checkpoints", "crit, disk", "disk", Level::kCrit, 5, nullptr));
  all->back().touch = [](double t, RunView* view, RunSeries*) {
    view->files = {{kStart, 9.5e9, "out/checkpoint-40/model.safetensors"}};
    view->host.disk.free = t >= 300 ? 12e9 : 900e9;
    view->host.disk.total = 1000e9;
  };
  all->push_back(fault("the disk is out of inodes", "warn, inodes", "inodes", Level::kWarn, 5,
                       [](double, RunView* view, RunSeries*) {
                         view->host.disk.free = 900e9;
                         view->host.disk.total = 1000e9;
                         view->host.disk.inodes_free = 500;
                         view->host.disk.inodes_total = 60e6;
                       }));
  all->push_back(fault("the disk of the data is nearly full", "warn, data_disk", "data_disk", Level::kWarn, 5,
                       [](double, RunView* view, RunSeries*) {
                         view->host.data_disk = {"/data", 400e9, 8000e9, 50e6, 60e6};
                       }));
  all->push_back(fault("the disk of the data is out of inodes", "warn, data_inodes", "data_inodes",
                       Level::kWarn, 5, [](double, RunView* view, RunSeries*) {
                         view->host.data_disk = {"/data", 4000e9, 8000e9, 900, 60e6};
                       }));
}

/// Nothing is measured here: the GPUs are known by what Trackio noted each ten seconds.
Touch tracked_since(double from, std::function<void(double t, DeviceView*)> device) {
  return [=](double t, RunView* view, RunSeries* series) {
    view->processes.reset();  // another machine's
    if (t < from || std::fmod(t, 10) != 0) return;
    TrackedMoment moment;
    moment.time = view->wall;
    moment.memory_share = 0.4;
    for (std::int64_t d = 0; d < 4; ++d) {
      DeviceView one;
      one.index = d;
      one.busy_pct = 97;
      one.power_w = 560;
      one.limit_w = 700;
      one.used_bytes = 60e9;
      one.total_bytes = 80e9;
      device(t, &one);
      moment.devices.push_back(one);
    }
    add_tracked(std::move(moment), &series->tracked);
  };
}

void add_tracked_machine(std::vector<Scenario>* all) {
  const auto without_gpus = [&](Scenario scenario) {
    scenario.devices = false;
    all->push_back(std::move(scenario));
  };
  without_gpus(healthy(
      "on another machine, Trackio tells of its GPUs", 900, [](double, Second*) {},
      tracked_since(30, [](double, DeviceView*) {})));
  Scenario waits = fault("on another machine, GPUs busy at 16 % of their power", "warn, power", "power",
                         Level::kWarn, 90, nullptr);
  waits.touch = tracked_since(30, [](double t, DeviceView* one) {
    if (t >= 300) one->power_w = 112;
  });
  without_gpus(std::move(waits));
  Scenario slowed = fault("on another machine, a GPU slowed by its hardware", "warn, throttle", "throttle",
                          Level::kWarn, 60, nullptr);
  slowed.touch = tracked_since(
      30, [](double t, DeviceView* one) { one->slow_reasons = t >= 300 && one->index == 2 ? 0x8 : 0x4; });
  without_gpus(std::move(slowed));
}

/// A server that is asked each five seconds; `now` says how it is, counters included.
Touch server_at(std::function<void(double t, ServerMoment*)> now) {
  return [=](double t, RunView* view, RunSeries*) {
    if (std::fmod(t, 5) != 0) return;
    ServerMoment moment;
    moment.known = true;
    moment.kind = "vLLM";
    moment.running = 12;
    moment.waiting = 0;
    moment.cache_share = 0.41;
    moment.prompt_tokens = 500 * t;
    moment.generated_tokens = 2000 * t;
    now(t, &moment);
    view->server = moment;
  };
}

void add_servers(std::vector<Scenario>* all) {
  const auto serves = [](double, Second* s) { s->steps = false; };
  const auto idles = [](double, Second* s) {
    stop(s);
    s->watts = 85;
  };
  all->push_back(healthy("a server that generates", 600, serves, server_at([](double, ServerMoment*) {})));
  all->push_back(
      healthy("a server that nobody asks for 15 min", 900, idles, server_at([](double, ServerMoment* m) {
                m->running = 0;
                m->prompt_tokens = m->generated_tokens = 1e6;
              })));
  all->push_back({.name = "a server's engine hangs on 12 requests",
                  .fault = "STALLED",
                  .fault_at = 300,
                  .named_within = 120,
                  .length = 480,
                  .run =
                      [](double t, Second* s) {
                        s->steps = false;
                        if (t >= 300) stop(s);
                      },
                  .named =
                      [](const Verdict& v) {
                        return in_state(v, RunState::kStalled) &&
                               v.headline.find("12 requests, no token for") != std::string::npos;
                      },
                  .touch = server_at([](double t, ServerMoment* m) {
                    m->prompt_tokens = 500 * std::min(t, 300.0);
                    m->generated_tokens = 2000 * std::min(t, 300.0);
                  })});
  Scenario full =
      fault("a server's requests wait for its KV cache", "warn, server", "server", Level::kWarn, 10, nullptr);
  full.run = serves;
  full.touch = server_at([](double t, ServerMoment* m) {
    if (t < 300) return;
    m->waiting = 40;
    m->cache_share = 0.99;
  });
  all->push_back(std::move(full));
  Scenario silent =
      fault("a server's front end no longer answers", "warn, server", "server", Level::kWarn, 60, nullptr);
  silent.run = serves;
  silent.touch = server_at([](double t, ServerMoment* m) {
    if (t < 300) return;
    *m = ServerMoment();
    m->trouble = "no answer in time";
  });
  all->push_back(std::move(silent));
}

void add_devices(std::vector<Scenario>* all) {
  const auto first = [](RunView* view) -> DeviceView& { return view->devices->front(); };
  all->push_back(
      fault("78.5 of 80 GB in use", "warn, gpu_memory", "gpu_memory", Level::kWarn, 5,
            [](double, RunView* view, RunSeries*) { view->devices->front().used_bytes = 78.5e9; }));
  all->push_back(fault("a GPU is lost", "crit, lost", "lost", Level::kCrit, 5,
                       [=](double, RunView* view, RunSeries*) { first(view).lost = true; }));
  all->push_back(fault("uncorrected memory errors", "crit, ecc", "ecc", Level::kCrit, 5,
                       [=](double, RunView* view, RunSeries*) { first(view).ecc_uncorrected = 3; }));
  all->push_back(fault("a GPU near its heat limit", "warn, temperature", "temperature", Level::kWarn, 5,
                       [=](double, RunView* view, RunSeries*) {
                         first(view).celsius = 85;
                         first(view).slowdown_celsius = 87;
                       }));
  all->push_back(
      fault("power brake in a third of the looks", "crit, throttle", "throttle", Level::kCrit, 60, nullptr));
  all->back().touch = [=](double t, RunView* view, RunSeries*) {
    first(view).slow_reasons = t >= 300 && std::fmod(t, 3) == 0 ? 0x80 : 0x4;
  };
  all->push_back(fault("8 of 16 PCIe lanes", "warn, link", "link", Level::kWarn, 5,
                       [=](double, RunView* view, RunSeries*) {
                         first(view).link_width = 8;
                         first(view).max_link_width = 16;
                       }));
  all->push_back({.name = "rank 2 never came to its GPU",
                  .fault = "crit, rank_memory",
                  .fault_at = 150,
                  .named_within = 60,
                  .length = 270,
                  .run =
                      [](double t, Second* s) {
                        if (t < 150) return load(s, t);
                        spin(s);
                        s->odd_rank = 2;
                        s->odd_cores = 0.001;
                        s->odd_busy = 0;
                      },
                  .named = [](const Verdict& v) { return warned(v, "rank_memory", Level::kCrit); },
                  .touch =
                      [](double, RunView* view, RunSeries*) {
                        std::erase_if(*view->device_processes,
                                      [](const DeviceProcess& p) { return p.pid == 102; });
                        view->devices->at(2).used_bytes = 5e8;
                      }});
  all->push_back(fault("its link at PCIe generation 1 of 5", "warn, link", "link", Level::kWarn, 65,
                       [=](double, RunView* view, RunSeries*) {
                         first(view).link_generation = 1;
                         first(view).max_link_generation = 5;
                       }));
  all->push_back(fault("the link carries all it can", "warn, pcie", "pcie", Level::kWarn, 65,
                       [=](double, RunView* view, RunSeries*) {
                         first(view).link_width = first(view).max_link_width = 16;
                         first(view).link_generation = first(view).max_link_generation = 4;
                         first(view).pcie_in = 26e9;  // of 31.5
                       }));
  all->push_back(fault("20 GB of a GPU belong to nobody", "warn, stale_memory", "stale_memory", Level::kWarn,
                       5, [=](double, RunView* view, RunSeries*) {
                         first(view).reserved_bytes = 5e8;
                         first(view).used_bytes = 75e9;
                         first(view).total_bytes = 80e9;
                         view->device_processes->front().bytes = 54e9;
                       }));
  all->push_back(fault("another program on GPU 0", "warn, shared_gpu", "shared_gpu", Level::kWarn, 5,
                       [](double, RunView* view, RunSeries*) {
                         view->device_processes->push_back({999, 0, 5e9});
                       }));
  all->push_back(fault("a neighbour takes a third of GPU 0's time", "warn, shared_gpu", "shared_gpu",
                       Level::kWarn, 60, [](double, RunView* view, RunSeries*) {
                         view->device_processes->front().busy_pct = 60;
                         view->device_processes->push_back({999, 0, 0.4e9, 33});
                       }));
  all->push_back({.name = "stuck, and the GPUs do a neighbour's work",
                  .fault = "STALLED",
                  .fault_at = 300,
                  .named_within = 180,
                  .length = 500,
                  .run =
                      [](double t, Second* s) {
                        if (t < 300) return;
                        stop(s);
                        s->busy = 97;
                        s->watts = 560;
                      },
                  .named = [](const Verdict& v) { return in_state(v, RunState::kStalled); },
                  .touch =
                      [](double t, RunView* view, RunSeries*) {
                        for (DeviceProcess& process : *view->device_processes)
                          process.busy_pct = t < 300 ? 95 : 0;
                        for (std::int64_t d = 0; t >= 300 && d < 4; ++d)
                          view->device_processes->push_back({900 + d, d, 0.4e9, 97});
                      }});
  all->push_back(fault("GPU 3 works at half the power of the others", "warn, straggler", "straggler",
                       Level::kWarn, 300,
                       [](double, RunView* view, RunSeries*) { view->devices->back().power_w = 330; }));
}

void add_processes(std::vector<Scenario>* all) {
  all->push_back(fault("rank 1 is defunct, not collected", "crit, defunct", "defunct", Level::kCrit, 20,
                       [](double, RunView* view, RunSeries*) {
                         for (ProcessView& process : *view->processes)
                           if (process.pid == 101) process.state = 'Z';
                       }));
  all->push_back(fault("storage does not answer", "warn, storage", "storage", Level::kWarn, 120, nullptr));
  all->back().run = [](double t, Second* s) {
    if (t < 300) return;
    stop(s);
    s->state = 'D';
    s->wait_place = "nfs_wait_bit_killable";
  };
  all->back().touch = nullptr;
  all->push_back(fault("a loader worker outlived its rank", "warn, orphan", "orphan", Level::kWarn, 20,
                       [](double since, RunView* view, RunSeries*) {
                         ProcessView left;
                         left.pid = 290;
                         left.parent = 1;
                         left.start_time = 90;
                         left.state = 'S';
                         left.command = "pt_data_worker";
                         left.cpu_seconds = 5;
                         left.elapsed_seconds = since;
                         view->processes->push_back(left);
                       }));
  all->push_back(fault("the log was removed while open", "warn, log_deleted", "log_deleted", Level::kWarn, 5,
                       [](double, RunView*, RunSeries* series) { series->log_deleted = true; }));
  Scenario port = fault("MASTER_PORT in a dead run's hands", "crit, port", "port", Level::kCrit, 15,
                        [](double, RunView*, RunSeries*) {});
  port.fault_at = 0;
  port.length = 100;
  port.run = [](double, Second* s) {
    stop(s);
    s->memory_gb = 0.5;
    s->rank_cores = 0.2;
  };
  port.touch = [](double, RunView*, RunSeries* series) {
    series->port = {
        .port = 29500, .taken = true, .pid = 977, .user = 1000, .run_id = "k25-a", .name = "python"};
  };
  all->push_back(port);
}

void add_healthy(std::vector<Scenario>* all) {
  all->push_back(healthy("recompile of 5 min at the first validation", 1500, [](double t, Second* s) {
    if (t < 600 || t > 900) return;
    s->busy = 0;
    s->watts = 90;
    s->steps = false;
    s->read_rate = 0;
    s->compile_workers = true;
    s->worker_cores = 0.001;
  }));
  all->push_back(healthy("resumed, skips batches for 4 min", 900, [](double t, Second* s) {
    s->says = "Fast-skipping 8000 batches to resume mid-epoch";
    if (t > 240) return;
    s->busy = 0;
    s->watts = 90;
    s->steps = false;
    s->rank_cores = 0.9;
    s->worker_cores = 1.0;
  }));
  all->push_back(healthy("ranks wait while rank 0 saves for 60 s", 1200, [](double t, Second* s) {
    if (std::fmod(t, 400) < 340) return;
    spin(s);
    s->odd_rank = 0;
    s->odd_cores = 0.6;
    s->odd_busy = 0;
    s->write_rate = 160e6;
    s->says = fmt::format("Saving checkpoint to out/step-{}", static_cast<int>(t / 400));
  }));
  all->push_back(healthy("a step of 40 s", 2400, [](double, Second*) {}));
  all->back().step_seconds = 40;
  all->push_back(healthy(
      "nothing printed, event file each 2 min", 1500, [](double, Second* s) { s->prints = false; },
      [](double t, RunView* view, RunSeries*) {
        const double written = 120 * std::floor(t / 120);
        view->files = {{kStart + written, 100 * written, "out/events.out.tfevents.1772600000.node.1.0"}};
      }));
  all->push_back(healthy("spawned workers import for a minute", 600, [](double t, Second* s) {
    if (t > 60) return;
    s->busy = 0;
    s->watts = 85;
    s->steps = false;
    s->read_rate = 2e6;
    s->memory_gb = 1;
    s->worker_cores = 1.0;
  }));
  all->push_back(healthy(
      "a small neighbour on the GPU", 300, [](double, Second*) {},
      [](double, RunView* view, RunSeries*) {
        view->device_processes->push_back({999, 0, 3e8});
      }));
  all->push_back(healthy(
      "a busy machine: something always waits for a core", 600, [](double, Second*) {},
      [](double t, RunView* view, RunSeries*) {
        view->host.cpu_some_seconds = 0.9 * t;
        view->host.cpu_full_seconds = 0;
        view->host.memory_some_seconds = 0.02 * t;
        view->host.memory_full_seconds = 0.01 * t;
        view->host.network_bytes = 3e7 * t;
      }));
  Scenario cpu = healthy(
      "a CPU run draws 180 W", 300, [](double, Second* s) { s->read_rate = 0; },
      [](double t, RunView* view, RunSeries*) { view->host.package_joules = 180 * t; });
  cpu.fault = "told, package_power";
  cpu.named_within = 15;
  cpu.named = [](const Verdict& v) {
    return reason_of(v, "package_power") == "processors draw 180 W" && v.level == Level::kOk;
  };
  cpu.devices = false;
  cpu.ranks = 1;
  all->push_back(cpu);
}

}  // namespace

std::vector<Scenario> machine_scenarios() {
  std::vector<Scenario> all;
  add_healthy(&all);
  add_processes(&all);
  add_host(&all);
  add_devices(&all);
  add_tracked_machine(&all);
  add_servers(&all);
  return all;
}

}  // namespace eaglet::monitor
