#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/command.h"
#include "formats/json.h"
#include "train/device_plan.h"

namespace eaglet::apps {

/// Accelerators that need not be there, how many and how they are linked.
struct DeviceChoice {
  std::vector<std::string> devices;
  std::string link, calibration;
  std::vector<int> ranks = {1, 4, 8, 64};
  bool by_op = false;
};
/// --ranks, --link, --calibration and --by-op.
void add_device_choice_flags(CLI::App& app, DeviceChoice* choice);

/// A plan and what it is for.
struct PlannedOnDevice {
  DeviceFacts device;
  int ranks = 1;
  Link link = Link::kNvlink;
  DevicePlan plan;
  std::int64_t fitting_max_seq_len = 0;  // of the first number of ranks
};
/// One for each device and number of ranks. kUsage names what there is.
Result<std::vector<PlannedOnDevice>> plan_on_devices(const DeviceChoice& choice, const PlannedStep& step);
/// The table, the memory and, when wanted, the ops.
std::string planned_text(const DeviceChoice& choice, const std::vector<PlannedOnDevice>& all);
Json planned_json(const PlannedOnDevice& one);

/// `eaglet plan device`: a training step on paper.
struct PlanDeviceFlags : DeviceChoice {
  std::string shape = "reference", draft;
  PlannedStep step;  // config and vocabulary follow from shape or draft
};
void add_plan_device_flags(CLI::App& app, PlanDeviceFlags* flags);
Status plan_devices(const PlanDeviceFlags& flags, const Context& context);

}  // namespace eaglet::apps
