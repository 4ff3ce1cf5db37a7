#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/command.h"
#include "train/device_plan.h"

namespace eaglet::apps {

/// `eaglet plan device`: a training step on paper, on accelerators that need not be there.
struct PlanDeviceFlags {
  std::vector<std::string> devices;
  std::string shape = "reference", draft, link, calibration;
  std::vector<int> ranks = {1, 4, 8, 64};
  PlannedStep step;  // config and vocabulary follow from shape or draft
  bool by_op = false;
};
void add_plan_device_flags(CLI::App& app, PlanDeviceFlags* flags);
Status plan_devices(const PlanDeviceFlags& flags, const Context& context);

}  // namespace eaglet::apps
