// A made-up NVIDIA management library for tests. The file named by FAKE_NVML_SCENARIO says what calls answer:
//   init code9                                     nvmlInit fails with code 9
//   device name=H200 busy=91 power=612400 ...      one GPU; "busy=code3" makes that call answer code 3
//   process 0 pid=4711 bytes=69000000000 sm=93     on GPU 0; bytes=-1: not available; sm: percent, several
//   looks: 93,94,none
// Built with FAKE_NVML_OLD it has only the oldest symbols.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Work {
  unsigned pid;
  std::vector<std::string> sm;  // by look; the last one stays
};
struct Gpu {
  std::map<std::string, std::string> values;
  std::vector<std::pair<unsigned, unsigned long long>> processes;
  std::vector<Work> work;
  std::size_t work_looks = 0;
  bool xid_told = false;
};
std::vector<Gpu> gpus;
int init_code = 0;

int read_scenario() {
  gpus.clear();
  init_code = 0;
  const char* path = std::getenv("FAKE_NVML_SCENARIO");
  std::ifstream file(path == nullptr ? "" : path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind, word;
    words >> kind;
    if (kind == "init") {
      words >> word;
      init_code = std::atoi(word.c_str() + 4);
    } else if (kind == "device") {
      gpus.emplace_back();
      while (words >> word)
        gpus.back().values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    } else if (kind == "process") {
      std::size_t gpu = 0;
      unsigned pid = 0;
      unsigned long long bytes = 0;
      std::string sm;
      words >> gpu;
      while (words >> word) {
        const std::string value = word.substr(word.find('=') + 1);
        if (word.rfind("pid", 0) == 0) pid = static_cast<unsigned>(std::stoul(value));
        if (word.rfind("sm", 0) == 0) sm = value + ",";
        if (word.rfind("bytes", 0) == 0) bytes = value == "-1" ? ~0ull : std::stoull(value);
      }
      if (gpu >= gpus.size()) continue;
      gpus[gpu].processes.emplace_back(pid, bytes);
      if (!sm.empty()) gpus[gpu].work.push_back({pid, {}});
      for (std::size_t end; (end = sm.find(',')) != std::string::npos; sm.erase(0, end + 1))
        gpus[gpu].work.back().sm.push_back(sm.substr(0, end));
    }
  }
  return init_code;
}

/// 0 and the value, or the code that the scenario wants; 3 (not supported) when it says nothing.
int answer(void* device, const char* name, unsigned long long* value) {
  const Gpu& gpu = *static_cast<Gpu*>(device);
  const auto it = gpu.values.find(name);
  if (it == gpu.values.end()) return 3;
  if (it->second.rfind("code", 0) == 0) return std::atoi(it->second.c_str() + 4);
  *value = std::strtoull(it->second.c_str(), nullptr, 10);
  return 0;
}

int answer_unsigned(void* device, const char* name, unsigned* out) {
  unsigned long long value = 0;
  const int code = answer(device, name, &value);
  if (code == 0) *out = static_cast<unsigned>(value);
  return code;
}

}  // namespace

extern "C" {

int nvmlInit() {
  return read_scenario();
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount(unsigned* count) {
  *count = static_cast<unsigned>(gpus.size());
  return 0;
}
int nvmlDeviceGetHandleByIndex(unsigned index, void** device) {
  if (index >= gpus.size()) return 6;
  *device = &gpus[index];
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned length) {
  std::strncpy(text, static_cast<Gpu*>(device)->values["name"].c_str(), length);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* both) {
  return answer_unsigned(device, "busy", both);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return answer_unsigned(device, "power", milliwatts);
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  const int code = answer(device, "total", &total_free_used[0]);
  return code != 0 ? code : answer(device, "used", &total_free_used[2]);
}

#ifdef FAKE_NVML_OLD
struct OldProcess {
  unsigned pid;
  unsigned long long bytes;
};
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, OldProcess* out) {
  const auto& all = static_cast<Gpu*>(device)->processes;
  for (std::size_t i = 0; i < all.size(); ++i) out[i] = {all[i].first, all[i].second};
  *count = static_cast<unsigned>(all.size());
  return 0;
}
#else
int nvmlInit_v2() {
  return read_scenario();
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  return nvmlDeviceGetCount(count);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return nvmlDeviceGetHandleByIndex(index, device);
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  std::strncpy(text, static_cast<Gpu*>(device)->values["uuid"].c_str(), length);
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return answer_unsigned(device, "limit", milliwatts);
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  return answer(device, "energy", millijoules);
}
int nvmlDeviceGetTemperature(void* device, unsigned, unsigned* celsius) {
  return answer_unsigned(device, "celsius", celsius);
}
int nvmlDeviceGetTemperatureThreshold(void* device, unsigned, unsigned* celsius) {
  return answer_unsigned(device, "slowdown", celsius);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* bits) {
  return answer(device, "reasons", bits);
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned, unsigned, unsigned long long* count) {
  return answer(device, "ecc", count);
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* lanes) {
  return answer_unsigned(device, "width", lanes);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* lanes) {
  return answer_unsigned(device, "max_width", lanes);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* generation) {
  return answer_unsigned(device, "gen", generation);
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* generation) {
  return answer_unsigned(device, "max_gen", generation);
}
/// kB/s: 0 what the GPU sends, 1 what it receives.
int nvmlDeviceGetPcieThroughput(void* device, unsigned counter, unsigned* value) {
  return answer_unsigned(device, counter == 0 ? "tx" : "rx", value);
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *pending = 0;
  return answer_unsigned(device, "mig", current);
}

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  if (memory->version != (sizeof(MemoryV2) | 2u << 24)) return 25;
  const int code = answer(device, "total", &memory->total);
  if (code != 0) return code;
  if (answer(device, "reserved", &memory->reserved) != 0) memory->reserved = 0;
  return answer(device, "used", &memory->used);
}

struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* out) {
  const auto& all = static_cast<Gpu*>(device)->processes;
  for (std::size_t i = 0; i < all.size(); ++i) out[i] = {all[i].first, all[i].second, 0, 0};
  *count = static_cast<unsigned>(all.size());
  return 0;
}

struct ProcessWork {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};
/// As the driver's: what is new since `last_seen_us`; 6 (not found) when nothing ran, 3 on boards that cannot
/// tell.
int nvmlDeviceGetProcessUtilization(void* device, ProcessWork* out, unsigned* count,
                                    unsigned long long last_seen_us) {
  Gpu& gpu = *static_cast<Gpu*>(device);
  if (gpu.work.empty()) return 3;
  if (*count < gpu.work.size()) return 7;
  const std::size_t look = gpu.work_looks++;
  if (last_seen_us != 1000 * look) return 2;  // the newest time that was told, not another
  *count = 0;
  for (const Work& work : gpu.work) {
    const std::string& sm = work.sm[std::min(look, work.sm.size() - 1)];
    if (sm == "none") continue;
    out[(*count)++] = {work.pid, 1000 * (look + 1), static_cast<unsigned>(std::stoul(sm)), 0, 0, 0};
  }
  return *count == 0 ? 6 : 0;
}

struct GpmSupport {
  unsigned version, supported;
};
struct GpmSample {  // what counters would show: tensor work (percent of the time) and the link (MiB), added
                    // up
  double active, sent, received, looks;
};
struct GpmMetric {
  unsigned id;
  int code;
  double value;
  const char *short_name, *long_name, *unit;
};
struct GpmComparison {
  unsigned version, count;
  GpmSample *first, *second;
  GpmMetric metrics[1];
};
int nvmlGpmQueryDeviceSupport(void* device, GpmSupport* support) {
  unsigned long long tensor = 0;
  if (support->version != 1) return 25;
  support->supported = answer(device, "tensor", &tensor) == 0;
  return 0;
}
int nvmlGpmSampleAlloc(GpmSample** sample) {
  *sample = new GpmSample{};
  return 0;
}
int nvmlGpmSampleFree(GpmSample* sample) {
  delete sample;
  return 0;
}
int nvmlGpmSampleGet(void* device, GpmSample* sample) {
  static double looks = 0;
  unsigned long long tensor = 0, sent = 0, received = 0;
  const int code = answer(device, "tensor", &tensor);
  if (code != 0) return code;
  (void)answer(device, "tx", &sent);
  (void)answer(device, "rx", &received);
  sample->looks = ++looks;
  sample->active = static_cast<double>(tensor) * looks;
  sample->sent = static_cast<double>(sent) * looks;
  sample->received = static_cast<double>(received) * looks;
  return 0;
}
int nvmlGpmMetricsGet(GpmComparison* c) {
  if (c->version != 1) return 25;
  const double looks = c->second->looks - c->first->looks;
  for (unsigned i = 0; i < c->count; ++i) {
    GpmMetric& metric = c->metrics[i];
    metric.code = looks > 0 && (metric.id == 5 || metric.id == 20 || metric.id == 21) ? 0 : 3;
    const double grown = metric.id == 20   ? c->second->sent - c->first->sent
                         : metric.id == 21 ? c->second->received - c->first->received
                                           : c->second->active - c->first->active;
    metric.value = grown / looks;
  }
  return 0;
}

struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
int nvmlEventSetCreate(void** set) {
  *set = &gpus;
  return 0;
}
int nvmlDeviceRegisterEvents(void*, unsigned long long, void*) {
  return 0;
}
int nvmlEventSetWait_v2(void*, EventData* data, unsigned) {
  for (Gpu& gpu : gpus) {
    unsigned long long xid = 0;
    if (gpu.xid_told || answer(&gpu, "xid", &xid) != 0) continue;
    gpu.xid_told = true;
    *data = {&gpu, 0x8, xid, 0, 0};
    return 0;
  }
  return 10;  // time is up
}
#endif

}  // extern "C"
