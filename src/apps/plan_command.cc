#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/command.h"
#include "apps/plan_device.h"
#include "apps/plan_states.h"
#include "apps/plan_train.h"
#include "apps/usage_error.h"

namespace eaglet::apps {
namespace {

/// `plan --device` beside flags of the plan of states: the batch's length counts, the others would do
/// nothing.
Status take_device_alone(const CLI::App& app, const PlanStatesFlags& states, PlanDeviceFlags* device) {
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0 && option->get_name() != "--device" && option->get_name() != "--max-seq-len")
      return flags_error(option->get_name() + " has no effect with --device",
                         "leave it out; eaglet plan device --help lists what has");
  if (app.count("--max-seq-len") > 0) device->step.max_seq_len = states.max_seq_len;
  return {};
}

}  // namespace

Run add_plan(CLI::App& app) {
  app.description("Tells what a run will need before anything starts. Nothing is run or written.");
  app.footer(
      "  eaglet plan --model target.gguf --conversations c.jsonl --max-seq-len 8192 --states-dir runs/a\n"
      "  eaglet plan --hidden-size 7168 --slots 4 --samples 37312 --mean-tokens 2205 --states-dir /data\n"
      "  eaglet plan --hidden-size 7168 --slots 4 --lengths lengths.jsonl --max-seq-len 8192 --json\n"
      "  eaglet plan train --help\n"
      "  eaglet plan --device h200                        a training step on paper; eaglet plan device "
      "--help");
  auto states = std::make_shared<PlanStatesFlags>();
  add_plan_states_flags(app, states.get());
  CLI::App* train = app.add_subcommand("train", "a training run: batches, memory, arithmetic, time");
  const Run plan_train = add_plan_train(*train);
  auto device = std::make_shared<PlanDeviceFlags>();
  CLI::App* on_device = app.add_subcommand(
      "device", "a training step on accelerators that need not be there: time, memory, limits");
  add_plan_device_flags(*on_device, device.get());
  app.add_option("--device", device->devices, "a training step on these, as `plan device` with its defaults")
      ->delimiter(',')
      ->type_name("NAMES");
  return [states, train, plan_train, on_device, device, &app](Context& context) -> Status {
    if (train->parsed()) return plan_train(context);
    if (!device->devices.empty()) {
      if (!on_device->parsed()) EAGLET_RETURN_IF_ERROR(take_device_alone(app, *states, device.get()));
      return plan_devices(*device, context);
    }
    if (!wants_states_plan(*states))
      return Status(StatusCode::kUsage, "nothing to plan", "eaglet plan",
                    "give --conversations, --lengths or --samples for the bytes of states; for a training "
                    "run: eaglet plan train --help");
    EAGLET_ASSIGN_OR_RETURN(const StatesPlan plan, plan_states(*states));
    if (context.json)
      fmt::print("{}\n", Json({{"schema", 1}, {"states", states_plan_json(plan)}}).dump(2));
    else
      fmt::print("{}", states_plan_text(plan));
    return check_states_plan(plan, *states);
  };
}

}  // namespace eaglet::apps
