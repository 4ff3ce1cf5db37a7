#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "apps/commands.h"
#include "apps/exit_code.h"
#include "base/interrupt.h"
#include "generated/apps/build_facts.h"

int main(int argc, char** argv) {
  using namespace eaglet;
  install_interrupt_handlers();
  CLI::App app("eaglet");
  app.require_subcommand(1);
  apps::Context context;
  context.program = argv[0];
  app.add_flag("--json", context.json, "results as one JSON document on stdout");
  app.fallthrough();
  NoProgress silent;
  context.progress = &silent;
  apps::Run chosen;
  for (const apps::CommandEntry& entry : apps::commands()) {
    CLI::App* command = app.add_subcommand(entry.name, entry.summary);
    apps::Run run = entry.add(*command);
    command->final_callback([&chosen, run] { chosen = run; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  const Status status = chosen(context);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return apps::exit_code(status);
}
