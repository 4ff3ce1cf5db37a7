// The runtime calls of cuda_runtime.h. Device memory is closed to the host: it is opened while a kernel or a
// copy runs. Work of a stream waits in line and runs when somebody synchronises, or earlier where the seed
// says so, so that code which relies on luck is found.

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cuda_runtime.h"
#include "emulation.h"
#include "guarded_memory.h"

struct CUevent_st {
  std::uint64_t recorded = 0, done = 0;  // how many times
  std::vector<double> times;             // of the device, by record
  bool timed = false;
  CUstream_st* stream = nullptr;  // that recorded it last
  bool live = true;
};

emulation::Index3 &threadIdx = emulation::position().thread, &blockIdx = emulation::position().block,
                  &blockDim = emulation::position().block_size, &gridDim = emulation::position().grid_size;

namespace emulation {
namespace {

// Of a device of this decade, about.
constexpr double kLaunchSeconds = 2e-6, kThreadSeconds = 5e-12;
constexpr double kBusBandwidth = 40e9, kMemoryBandwidth = 2e12;  // bytes per second

// Time on the device is reckoned, not measured: an operation begins when the one before it on its stream and
// all that it waits for have ended, not before it was asked for, and takes what a device of its kind might
// take. So times are the same whatever order the seed draws.
struct Operation {
  std::function<void()> run;              // a kernel, a copy, an event that is recorded
  double seconds = 0;                     // that it takes
  std::string name = {};                  // under which busy_seconds() counts it
  CUevent_st* wait_for = nullptr;         // or: waits until this one
  std::uint64_t wait_for_record = 0;      // has been done so many times
  std::function<bool()> ready = nullptr;  // or: runs when this says so, which may take other processes
  double asked_for = 0;                   // when, by the host's clock
};

struct Allocation {
  std::unique_ptr<GuardedMemory> memory;
  bool live = true, pinned = false;
  int number = 0;
};

}  // namespace
}  // namespace emulation

struct CUstream_st {
  double clock = 0;  // when all that it did had ended
  std::deque<emulation::Operation> waiting;
  bool live = true;
};

namespace emulation {
namespace {

struct Device {
  std::vector<std::string> faults;
  std::uint64_t seed = 1;
  eaglet::Rng rng{1};
  std::map<const char*, Allocation> allocations;  // by first byte
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::vector<std::unique_ptr<CUevent_st>> events;
  std::map<const void*, std::size_t> shared_bytes;  // by kernel, where it was asked for
  const char* next_name = "kernel";
  int allocated = 0, open = 0;
  double host_clock = 0;  // moves when the host waits for the device
  std::map<std::string, double> busy;
  cudaError_t last_error = cudaSuccess;
};

Device& device() {
  static Device* const d = new Device();
  return *d;
}

cudaError_t refuse(cudaError_t error, const std::string& why) {
  fault(why);
  device().last_error = error;
  return error;
}

// The allocation that an address lies in, its end included; nullptr when none.
Allocation* find(const void* address) {
  auto& all = device().allocations;
  auto after = all.upper_bound(static_cast<const char*>(address));
  if (after == all.begin()) return nullptr;
  Allocation& found = std::prev(after)->second;
  return static_cast<const char*>(address) <= found.memory->data() + found.memory->bytes() ? &found : nullptr;
}

void open_all() {
  if (device().open++ > 0) return;
  for (auto& [at, allocation] : device().allocations)
    if (allocation.live && !allocation.pinned) allocation.memory->open();
}
void close_all() {
  if (--device().open > 0) return;
  for (auto& [at, allocation] : device().allocations)
    if (allocation.live && !allocation.pinned) allocation.memory->close();
}

void on_bad_access(int, siginfo_t* info, void*) {
  char text[200];
  const char* place = "nobody's memory";
  long offset = 0;
  int number = 0;
  std::size_t bytes = 0;
  for (auto& [at, allocation] : device().allocations)
    if (allocation.memory->near(info->si_addr)) {
      place = !allocation.live ? "device memory that was given back"
              : in_kernel()    ? "beyond the ends of device memory"
                               : "device memory, touched by the host";
      offset = static_cast<long>(static_cast<char*>(info->si_addr) - at);
      bytes = allocation.memory->bytes();
      number = allocation.number;
    }
  std::snprintf(text, sizeof text, "access to %s: allocation %d of %zu bytes, at byte %ld", place, number,
                bytes, offset);
  if (in_kernel()) fault(text);  // does not return
  std::fprintf(stderr, "%s\n", text);
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}

void watch_accesses() {
  static const bool done = [] {
    struct sigaction action = {};
    action.sa_sigaction = &on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // a launch is left from within the handler
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    return true;
  }();
  static_cast<void>(done);
}

bool is_live(cudaStream_t stream) {
  for (const auto& s : device().streams)
    if (s.get() == stream) return s->live;
  return false;
}
bool is_live(cudaEvent_t event) {
  for (const auto& e : device().events)
    if (e.get() == event) return e->live;
  return false;
}

void run_first(CUstream_st& stream);

void run_until(CUevent_st& event, std::uint64_t record) {
  if (event.done >= record) return;
  open_all();
  while (event.done < record && !event.stream->waiting.empty()) run_first(*event.stream);
  close_all();
}

void run_first(CUstream_st& stream) {
  const auto& ready = stream.waiting.front().ready;
  while (ready && device().faults.empty() && !ready()) ::usleep(20);
  Operation operation = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  if (operation.wait_for != nullptr) {
    run_until(*operation.wait_for, operation.wait_for_record);
    if (operation.wait_for->done >= operation.wait_for_record)
      stream.clock = std::max(stream.clock, operation.wait_for->times[operation.wait_for_record - 1]);
    return;
  }
  if (!device().faults.empty()) return;  // a device that failed does nothing more
  watch_accesses();                      // a kernel may use shared memory alone
  stream.clock = std::max(stream.clock, operation.asked_for) + operation.seconds;
  if (!operation.name.empty()) device().busy[operation.name] += operation.seconds;
  open_all();
  operation.run();
  close_all();
}

// One step of a stream, or of the one whose event it waits for, if that needs no other process. False: none.
bool try_step(CUstream_st& stream) {
  if (stream.waiting.empty()) return false;
  const Operation& first = stream.waiting.front();
  if (first.wait_for != nullptr && first.wait_for->done < first.wait_for_record)
    return first.wait_for->stream != &stream && try_step(*first.wait_for->stream);
  if (first.ready && !first.ready()) return false;
  run_first(stream);
  return true;
}

// All that waits; memory is opened once for it.
void run_all(CUstream_st& stream) {
  if (stream.waiting.empty()) return;
  open_all();
  while (!stream.waiting.empty()) run_first(stream);
  close_all();
}

// The device works while the host goes on: mostly not at all, sometimes far ahead (opening memory is what
// costs).
void work_a_little() {
  Device& d = device();
  if (d.rng.below(8) != 0) return;
  open_all();
  for (std::uint64_t n = d.rng.below(24); n > 0; --n) try_step(*d.streams[d.rng.below(d.streams.size())]);
  close_all();
}

cudaError_t queue(cudaStream_t stream, Operation operation) {
  if (!device().faults.empty()) return cudaErrorLaunchFailure;
  if (!is_live(stream))
    return refuse(cudaErrorInvalidResourceHandle,
                  "work on a stream that is none: the default stream is not used here");
  operation.asked_for = device().host_clock;
  stream->waiting.push_back(std::move(operation));
  work_a_little();
  return device().faults.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t take(void** to, std::size_t bytes, bool pinned) {
  if (!device().faults.empty()) return cudaErrorLaunchFailure;
  watch_accesses();
  *to = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > std::size_t{64} << 30) return cudaErrorMemoryAllocation;
  Allocation allocation;
  allocation.memory = std::make_unique<GuardedMemory>(bytes);
  allocation.pinned = pinned;
  allocation.number = ++device().allocated;
  *to = allocation.memory->data();
  if (!pinned && device().open == 0) allocation.memory->close();
  device().allocations.emplace(allocation.memory->data(), std::move(allocation));
  return cudaSuccess;
}

cudaError_t give_back(void* memory, bool pinned) {
  if (memory == nullptr) return cudaSuccess;
  const auto found = device().allocations.find(static_cast<const char*>(memory));
  if (found == device().allocations.end() || !found->second.live || found->second.pinned != pinned)
    return refuse(cudaErrorInvalidValue, "memory is given back that was not taken, or twice");
  for (auto& stream : device().streams) run_all(*stream);  // cudaFree() waits for all work
  Allocation& allocation = found->second;
  allocation.memory->open();
  if (!allocation.memory->tail_is_whole()) fault("bytes behind the end of an allocation were overwritten");
  allocation.memory->close();
  allocation.live = false;
  return device().faults.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

bool lies_in(const void* from, std::size_t bytes, bool pinned) {
  const Allocation* found = find(from);
  return found != nullptr && found->live && found->pinned == pinned &&
         static_cast<const char*>(from) + bytes <= found->memory->data() + found->memory->bytes();
}

}  // namespace

void set_seed(std::uint64_t seed) {
  device().seed = seed;
  device().rng = eaglet::Rng(seed, 77);
}
std::uint64_t seed() {
  return device().seed;
}
const std::vector<std::string>& faults() {
  return device().faults;
}

void fault(const std::string& what) {
  const std::string place = where_in_kernel();
  device().faults.push_back(place.empty() ? what : what + " (" + place + ")");
  if (in_kernel()) end_launch();
}

int live_allocations() {
  int live = 0;
  for (const auto& [at, allocation] : device().allocations) live += allocation.live ? 1 : 0;
  return live;
}

int reset() {
  const int forgotten = live_allocations();
  device().faults.clear();
  device().allocations.clear();
  for (auto& stream : device().streams) stream->waiting.clear();
  device().last_error = cudaSuccess;
  return forgotten;
}

double busy_seconds(const std::string& name) {
  double sum = 0;
  for (const auto& [of, seconds] : device().busy)
    if (name.empty() || of == name) sum += seconds;
  return sum;
}

bool lies_in_device(const void* from, std::size_t bytes) {
  return lies_in(from, bytes, false);
}
cudaError_t queue_work(cudaStream_t stream, const char* name, double seconds, std::function<void()> work) {
  return queue(stream, {std::move(work), kLaunchSeconds + seconds, name});
}

cudaError_t queue_work_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> work) {
  return queue(stream, {std::move(work), kLaunchSeconds, "ranks", nullptr, 0, std::move(ready)});
}
void with_memory_open(const std::function<void()>& body) {
  open_all();
  body();
  close_all();
}

void name_next_launch(const char* name) {
  device().next_name = name;
}

unsigned ballot(unsigned mask, bool predicate, const char* what) {
  const std::uint64_t* all = warp_exchange(mask, what, predicate ? 1 : 0);
  unsigned bits = 0;
  for (int l = 0; l < kLanes; ++l)
    if ((mask >> l & 1u) != 0 && all[l] != 0) bits |= 1u << l;
  return bits;
}

// Of one kernel: 48 KiB unless more was asked for.
std::size_t most_shared_of(const void* kernel) {
  const auto asked = device().shared_bytes.find(kernel);
  return asked == device().shared_bytes.end() ? std::size_t{48} << 10 : asked->second;
}

// Is it an address of the host's memory, or of device memory that was given back? Numbers seldom look so.
bool is_wrong_address(const void* value) {
  if (const Allocation* found = find(value)) return !found->live || found->pinned;
  const auto page = reinterpret_cast<std::uintptr_t>(value) & ~std::uintptr_t{4095};
  unsigned char resident = 0;
  return page != 0 && page >> 47 == 0 && mincore(reinterpret_cast<void*>(page), 1, &resident) == 0;
}

// What is wrong with an argument of a kernel, or "".
std::string wrong_in(const Argument& argument, int number) {
  for (std::size_t at = 0; at + sizeof(void*) <= argument.bytes; at += sizeof(void*)) {
    const void* value = nullptr;
    std::memcpy(&value, static_cast<const char*>(argument.at) + at, sizeof value);
    if (argument.is_pointer && value != nullptr && !lies_in(value, 0, false))
      return "a pointer that is not into device memory, argument " + std::to_string(number);
    if (!argument.is_pointer && argument.bytes > sizeof value && is_wrong_address(value))
      return "a structure with an address that is not of device memory, argument " + std::to_string(number) +
             " at byte " + std::to_string(at);
  }
  return "";
}

cudaError_t queue_launch(const void* kernel, const cudaLaunchConfig_t& config, const Argument* arguments,
                         int num_arguments, std::function<void()> thread) {
  constexpr unsigned kMostBlocks = 0x7fffffff, kMostBlocksYz = 65535, kMostThreads = 1024, kMostThreadsZ = 64;
  const std::size_t most_shared = most_shared_of(kernel);
  const std::string name = device().next_name;
  const dim3 &g = config.gridDim, &b = config.blockDim;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > kMostBlocks || g.y > kMostBlocksYz || g.z > kMostBlocksYz)
    return refuse(cudaErrorInvalidConfiguration, name + ": a grid that no device takes");
  if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > kMostThreads || b.y > kMostThreads || b.z > kMostThreadsZ ||
      b.x * b.y * b.z > kMostThreads)
    return refuse(cudaErrorInvalidConfiguration, name + ": a block that no device takes");
  if (config.dynamicSmemBytes > most_shared)
    return refuse(cudaErrorInvalidValue, name + ": more dynamic shared memory than a kernel gets unasked");
  for (int i = 0; i < num_arguments; ++i)
    if (const std::string wrong = wrong_in(arguments[i], i); !wrong.empty())
      return refuse(cudaErrorInvalidValue, name + ": " + wrong);
  const LaunchShape shape{{g.x, g.y, g.z}, {b.x, b.y, b.z}, config.dynamicSmemBytes};
  const double threads = 1.0 * g.x * g.y * g.z * b.x * b.y * b.z;
  return queue(config.stream, {[name, shape, thread = std::move(thread)] { run_kernel(name, shape, thread); },
                               kLaunchSeconds + threads * kThreadSeconds, name});
}

}  // namespace emulation

using emulation::device;

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess              ? "cudaSuccess"
         : error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure"
                                           : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  return device().faults.empty() ? "the emulated device refused" : device().faults.front().c_str();
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = device().last_error;
  device().last_error = cudaSuccess;
  return error;
}
// A machine of EAGLET_EMULATION_DEVICES devices; a process has memory on the one that it opens.
cudaError_t cudaGetDeviceCount(int* count) {
  const char* told = std::getenv("EAGLET_EMULATION_DEVICES");
  *count = told == nullptr ? 1 : std::atoi(told);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
  int count = 0;
  cudaGetDeviceCount(&count);
  return number >= 0 && number < count ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  *properties = {"the emulation", {}, std::size_t{1} << 30, 9, 0, 4};
  properties->uuid.bytes[0] = static_cast<char>(number);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = *total_bytes = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  constexpr int kMost = 99 << 10;  // of compute capability 8.6, the smallest of those we compile for
  if (value < 0 || value > kMost)
    return emulation::refuse(cudaErrorInvalidValue, "more shared memory than every device has");
  device().shared_bytes[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  return emulation::take(to, bytes, false);
}
cudaError_t cudaFree(void* memory) {
  return emulation::give_back(memory, false);
}
cudaError_t cudaMallocHost(void** to, std::size_t bytes) {
  return emulation::take(to, bytes, true);
}
cudaError_t cudaFreeHost(void* memory) {
  return emulation::give_back(memory, true);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool to_host = kind == cudaMemcpyDeviceToHost, from_host = kind == cudaMemcpyHostToDevice;
  if (kind == cudaMemcpyHostToHost || !emulation::lies_in(to, bytes, to_host) ||
      !emulation::lies_in(from, bytes, from_host))
    return emulation::refuse(
        cudaErrorInvalidValue,
        "a copy beyond memory, or of host memory that is not pinned, or of another kind than it says");
  const bool over_bus = to_host || from_host;
  return emulation::queue(stream, {[=] { std::memmove(to, from, bytes); },
                                   emulation::kLaunchSeconds +
                                       static_cast<double>(bytes) / (over_bus ? emulation::kBusBandwidth
                                                                              : emulation::kMemoryBandwidth),
                                   to_host     ? "copy out"
                                   : from_host ? "copy in"
                                               : "copy"});
}

cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  if (!emulation::lies_in(to, bytes, false))
    return emulation::refuse(cudaErrorInvalidValue, "cudaMemsetAsync beyond device memory");
  return emulation::queue(
      stream,
      {[=] { std::memset(to, byte, bytes); },
       emulation::kLaunchSeconds + static_cast<double>(bytes) / emulation::kMemoryBandwidth, "memset"});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  device().streams.push_back(std::make_unique<CUstream_st>());
  *stream = device().streams.back().get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!emulation::is_live(stream)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such stream");
  emulation::run_all(*stream);
  stream->live = false;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!emulation::is_live(stream)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such stream");
  emulation::run_all(*stream);
  device().host_clock = std::max(device().host_clock, stream->clock);
  return device().faults.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!emulation::is_live(stream)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such stream");
  for (std::uint64_t n = device().rng.below(4); !stream->waiting.empty() && n > 0; --n)
    emulation::try_step(*stream);
  if (!device().faults.empty()) return cudaErrorLaunchFailure;
  if (!stream->waiting.empty()) return cudaErrorNotReady;
  device().host_clock = std::max(device().host_clock, stream->clock);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!emulation::is_live(event)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such event");
  if (event->recorded == 0) return cudaSuccess;
  return emulation::queue(stream, {nullptr, 0, {}, event, event->recorded, nullptr});
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  device().events.push_back(std::make_unique<CUevent_st>());
  device().events.back()->timed = (flags & cudaEventDisableTiming) == 0;
  *event = device().events.back().get();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!emulation::is_live(event)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such event");
  event->live = false;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!emulation::is_live(event)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such event");
  const std::uint64_t record = ++event->recorded;
  event->stream = stream;
  event->times.resize(record, 0);
  return emulation::queue(stream, {[=] {
                            event->done = record;
                            event->times[record - 1] = stream->clock;
                          }});
}
// Answers at once: the device may have done nothing, something or all since the last question.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!emulation::is_live(event)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such event");
  for (std::uint64_t n = device().rng.below(4); event->done < event->recorded && n > 0; --n)
    emulation::try_step(*event->stream);
  if (!device().faults.empty()) return cudaErrorLaunchFailure;
  if (event->done < event->recorded) return cudaErrorNotReady;
  if (event->recorded > 0) device().host_clock = std::max(device().host_clock, event->times.back());
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = 0;
  for (const cudaEvent_t event : {begin, end}) {
    if (!emulation::is_live(event) || !event->timed || event->recorded == 0)
      return emulation::refuse(cudaErrorInvalidResourceHandle,
                               "the time of an event that is none, takes no time or was never recorded");
    if (event->done < event->recorded) return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(1e3 * (end->times.back() - begin->times.back()));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!emulation::is_live(event)) return emulation::refuse(cudaErrorInvalidResourceHandle, "no such event");
  if (event->recorded > 0) {
    emulation::run_until(*event, event->recorded);
    device().host_clock = std::max(device().host_clock, event->times.back());
  }
  return device().faults.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}
