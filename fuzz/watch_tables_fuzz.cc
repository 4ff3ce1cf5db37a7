#include "fuzz_input.h"
#include "monitor/gpu_page.h"
#include "monitor/kernel_log.h"
#include "monitor/metric_tables.h"
#include "monitor/saved_tables.h"
#include "monitor/server_metrics.h"
#include "monitor/trackio_machine.h"

// Tables that people save and mail, the kernel's log, the metric files of trainers, a server's page, a
// GPU exporter's, and what a tracker noted: the first byte says which. None of them may fail.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace eaglet::monitor;
  if (bytes == 0) return 0;
  const std::string_view text = as_text(data + 1, bytes - 1);
  if (data[0] == 'm') promise(facts_of_csv(std::string(text)).last_step >= -1);
  if (data[0] == 't') promise(facts_of_trainer_state(std::string(text)).total_steps >= 0);
  if (data[0] == 'p') promise(server_moment(text).known != server_moment(text).kind.empty());
  if (data[0] == 'g')
    for (const ExportedGpu& gpu : read_gpu_page(text).gpus) {
      promise(gpu.view.index >= 0 && !(gpu.view.busy_pct < 0) && !(gpu.view.busy_pct > 100));
      promise(!gpu.view.slow_reasons || *gpu.view.slow_reasons < std::uint64_t{1} << 62);
    }
  if (data[0] == 'k')
    for (const DeviceView& device : tracked_moment(text, 1).devices) promise(device.index >= 0);
  if (std::string_view("mtpgk").find(static_cast<char>(data[0])) != std::string_view::npos) return 0;
  switch (data[0] % 5) {
    case 0:
      for (const ProcessView& process : read_ps(text)) promise(process.pid >= -1);
      break;
    case 1: {
      auto devices = read_gpu_csv(text);
      auto processes = read_compute_apps(text, devices);
      read_pmon(text, &processes);
      for (const DeviceProcess& process : processes)
        promise(!(process.busy_pct < 0 || process.busy_pct > 100));
      read_dmon_link(text, &devices);
      break;
    }
    case 2:
      read_file_list(text);
      break;
    case 3:
      promise(rank_of_command(text) >= -1);
      break;
    default:
      if (const auto line = parse_kernel_record(text)) promise(line->pid >= 0 || line->code >= 0);
  }
  return 0;
}
