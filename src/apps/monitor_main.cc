// eaglet-monitor: what looks at runs and nothing else. `--host` sends it to other machines.
#include <cstring>

#include "apps/exit_code.h"
#include "apps/host_session.h"
#include "apps/program.h"
#include "base/interrupt.h"
#include "generated/apps/build_facts.h"

int main(int argc, char** argv) {
  using namespace eaglet::apps;
  eaglet::install_interrupt_handlers();
  if (argc == 3 && std::strcmp(argv[1], "--host-session") == 0) return exit_code(serve_host_session(argv[2]));
  Program program;
  program.summary = "Looks at training runs of any trainer: the part of eaglet that needs no maths.";
  program.examples =
      "  eaglet-monitor doctor 4711                   one verdict on a process, its ranks, log and GPUs\n"
      "  eaglet-monitor watch runs/mine               live view; q leaves it";
  program.commands = {
      {"watch", "a live view of any training run, from outside", add_watch, false},
      {"doctor", "one verdict on a run: healthy, stuck or dead, and what to do", add_doctor, false},
      {"wait", "waits until a run has come so far", add_wait, false},
      {"launch", "starts any trainer so that it can be judged well", add_launch, false},
      {"orphans", "what dead runs left: processes and GPU memory", add_orphans, false}};
  program.facts = [] {
    return eaglet::Json{{"schema", 1},
                        {"version", EAGLET_VERSION},
                        {"revision", EAGLET_REVISION},
                        {"build_type", EAGLET_BUILD_TYPE},
                        {"compiler", EAGLET_COMPILER},
                        {"libraries", eaglet::Json::object()}};
  };
  return run_program(argc, argv, program);
}
