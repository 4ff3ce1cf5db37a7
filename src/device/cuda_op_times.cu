#include <utility>
#include <vector>

#include "device/cuda_op_times.h"

namespace eaglet::cuda {
namespace {

struct Span {
  cudaEvent_t begin = nullptr, end = nullptr;
  OpGroup group = OpGroup::kProducts;
};

// One thread drives the device, so this needs no lock. Events are made once and used again.
struct Measured {
  bool on = false;
  int depth = 0;  // of TimedOps alive
  std::vector<Span> spans, free;
};
Measured measured;

// Nobody takes what was measured: no more events for it.
constexpr std::size_t kMostSpans = 1 << 16;

// The device may not have come to it yet: then it stays for the next time.
bool take(const Span& span, OpTimes* times) {
  const cudaError_t done = cudaEventQuery(span.end);
  if (done == cudaErrorNotReady) return false;
  note(done, "time of an op");
  float milliseconds = 0;
  if (done == cudaSuccess) note(cudaEventElapsedTime(&milliseconds, span.begin, span.end), "time of an op");
  times->seconds[static_cast<std::size_t>(span.group)] += 1e-3 * static_cast<double>(milliseconds);
  return true;
}

}  // namespace

TimedOp::TimedOp(OpGroup group, cudaStream_t on) : stream_(on) {
  outermost_ = measured.depth++ == 0;
  if (!measured.on || !outermost_ || measured.spans.size() >= kMostSpans) return;
  Span span;
  if (!measured.free.empty()) {
    span = measured.free.back();
    measured.free.pop_back();
  } else {
    for (cudaEvent_t* event : {&span.begin, &span.end})
      note(cudaEventCreateWithFlags(event, cudaEventDefault), "an event to measure with");
    if (span.begin == nullptr || span.end == nullptr) return;
  }
  span.group = group;
  measured.spans.push_back(span);
  note(cudaEventRecord(span.begin, stream_), "time of an op");
  end_ = span.end;
}

TimedOp::~TimedOp() {
  --measured.depth;
  if (end_ != nullptr) note(cudaEventRecord(end_, stream_), "time of an op");
}

bool time_ops(bool on) {
  return std::exchange(measured.on, on);
}

OpTimes take_op_times() {
  OpTimes times;
  std::vector<Span> left;
  for (const Span& span : measured.spans) (take(span, &times) ? measured.free : left).push_back(span);
  measured.spans = std::move(left);
  return times;
}

void forget_op_times() {
  for (const std::vector<Span>* spans : {&measured.spans, &measured.free})
    for (const Span& span : *spans)
      for (cudaEvent_t event : {span.begin, span.end}) cudaEventDestroy(event);
  measured = {};
}

}  // namespace eaglet::cuda
