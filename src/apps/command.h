#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"

namespace eaglet::apps {

/// What every command gets from the command line's common flags.
struct Context {
  Progress* progress = nullptr;           // talk on stderr
  bool json = false;                      // results as one JSON document on stdout
  bool color = false;                     // results on stdout may be coloured
  std::string program;                    // argv[0], to start ourselves again
  std::vector<std::string> how_it_talks;  // --progress and --color, for an eaglet that we start
  int verdict = 0;                        // exit code of a command that judges and did not fail: 0 to 3
};

/// One command: adds its flags to `app` (whose callback is left alone) and returns what to run after parsing.
/// The returned function prints results to stdout and hands any failure back; it never exits.
using Run = std::function<Status(Context&)>;

Run add_generate(CLI::App& app);
Run add_prepare(CLI::App& app);
Run add_extract(CLI::App& app);
Run add_train(CLI::App& app);
Run add_evaluate(CLI::App& app);
Run add_export(CLI::App& app);
Run add_import(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_run(CLI::App& app);
Run add_plan(CLI::App& app);
Run add_vocab(CLI::App& app);
Run add_store(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_watch(CLI::App& app);
Run add_doctor(CLI::App& app);
Run add_wait(CLI::App& app);
Run add_launch(CLI::App& app);
Run add_orphans(CLI::App& app);

}  // namespace eaglet::apps
