#include "apps/open_device.h"

#include <charconv>
#include <utility>

#include "apps/cuda_backend.h"

namespace eaglet::apps {
namespace {

// -1 when it is no number.
int number_of(const std::string& text) {
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && number >= 0;
  return whole ? number : -1;
}

}  // namespace

Result<std::unique_ptr<Accelerator>> open_device(const std::string& name, Progress& progress) {
  if (name == "cpu") return std::unique_ptr<Accelerator>();
  if (name == "auto") {
    if (usable_cuda_devices() == 0) return std::unique_ptr<Accelerator>();
    Result<std::unique_ptr<Accelerator>> device = open_cuda_backend(0);
    if (device.ok()) return device;
    progress.note("warning: the CUDA device is not used: " + device.status().message());
    return std::unique_ptr<Accelerator>();
  }
  const std::string prefix = "cuda:";
  const int number = name == "cuda"             ? 0
                     : name.starts_with(prefix) ? number_of(name.substr(prefix.size()))
                                                : -1;
  if (number < 0)
    return Status(StatusCode::kUsage, "there is no device '" + name + "'", "--device",
                  "give auto, cpu, cuda or cuda:N");
  return open_cuda_backend(number);
}

}  // namespace eaglet::apps
