#pragma once

#include <CLI/CLI.hpp>

#include "apps/command.h"

namespace eaglet::apps {

struct BenchWatchFlags {
  int processes = 100, seconds = 10, days = 7;
};
/// Adds `watch` to the bench command; its flags go to *flags.
CLI::App* add_bench_watch(CLI::App& bench, BenchWatchFlags* flags);

/// What watching costs: CPU a look at a tree of that many processes takes at 1 Hz, time to the first verdict,
/// and memory over a replayed run of that many days.
Status bench_watch(const BenchWatchFlags& flags, Context& context);

}  // namespace eaglet::apps
