#pragma once

#include <memory>
#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "device/accelerator.h"

namespace eaglet::apps {

inline constexpr const char* kDeviceHelp =
    "where steps run: cpu, cuda, cuda:N; auto: a CUDA device when there is one";

/// Opens what --device names: "cpu", "cuda", "cuda:N" or "auto". nullptr is this machine's processor. "auto"
/// falls back to it, with a note where a device is there that cannot be used. kUsage for other names,
/// kUnavailable.
Result<std::unique_ptr<Accelerator>> open_device(const std::string& name, Progress& progress);

}  // namespace eaglet::apps
