#include "apps/commands.h"
#include "apps/program.h"
#include "apps/version.h"
#include "base/interrupt.h"
#include "generated/apps/build_facts.h"

int main(int argc, char** argv) {
  using namespace eaglet::apps;
  eaglet::install_interrupt_handlers();
  const BuildFacts build = {EAGLET_VERSION, EAGLET_REVISION, EAGLET_BUILD_TYPE, EAGLET_COMPILER};
  Program program;
  program.summary = "Trains EAGLE-3 draft models for speculative decoding, from prompts to a served draft.";
  program.examples =
      "  eaglet run recipes/quickstart.toml          prompts to a served draft, with a report\n"
      "  eaglet train --help                         what one stage does, with examples\n"
      "  eaglet inspect runs/quickstart/states       what a file is, and whether it is whole";
  program.commands = commands();
  program.facts = [build] { return version_facts(build); };
  return run_program(argc, argv, program);
}
