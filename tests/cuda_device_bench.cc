// Times the kernels of a training step on the open CUDA device, one JSON line a measurement; checks/device.sh
// makes a table of them. Usage: cuda_device_bench [--seconds S] [SHAPE...]   SHAPE: smollm2, llama8b,
// reference, tiny; exit code 77: no device.
//
// The first two lines are what the others are held against: the rate of a large bf16 product, and the
// bandwidth of a copy.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/accelerator.h"
#include "device/device_products.h"
#include "ops/attention.h"
#include "ops/device_ops.h"

namespace eaglet {
namespace {

struct Shape {
  const char* name;
  std::int64_t width, heads, kv_heads, head_dim, mlp, draft_vocab;
  std::int64_t rows, document;  // rows of a batch, and of each document
};
constexpr Shape kShapes[] = {{"smollm2", 576, 9, 3, 64, 1536, 16384, 8192, 2048},
                             {"llama8b", 4096, 32, 8, 128, 14336, 32000, 8192, 2048},
                             {"reference", 7168, 64, 64, 128, 18432, 32000, 8192, 2205},
                             {"tiny", 32, 4, 2, 16, 48, 40, 24, 12}};

Accelerator* device = nullptr;
double most_seconds = 0.3;

[[noreturn]] void end(const Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

template <class T>
class Array {
 public:
  explicit Array(std::int64_t n) : Array(std::vector<T>(static_cast<std::size_t>(n))) {}
  explicit Array(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    Result<void*> memory = device->take(bytes_ + sizeof(T));
    if (!memory.ok()) end(memory.status());
    data_ = static_cast<T*>(*memory);
    device->to_device(data_, values.data(), bytes_);
  }
  ~Array() { device->give_back(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() const { return data_; }

 private:
  std::uint64_t bytes_;
  T* data_ = nullptr;
};

std::vector<float> numbers(std::int64_t n) {
  std::vector<float> all(static_cast<std::size_t>(n));
  std::uint32_t bits = 1;
  for (float& value : all) {
    bits = bits * 1664525u + 1013904223u;
    value = static_cast<float>(bits >> 8) / static_cast<float>(1u << 23) - 1;
  }
  return all;
}

// Once to warm up, then as often as fits; the time of one, on the device's own clock as far as the host sees
// it.
void measure(const std::string& shape, const char* name, double flops, double bytes,
             const std::function<void()>& body) {
  const auto seconds_of = [&](int times) {
    const double begin = monotonic_seconds();
    for (int i = 0; i < times; ++i) body();
    if (const Status status = device->wait(); !status.ok()) end(status);
    return monotonic_seconds() - begin;
  };
  seconds_of(1);
  const double once = seconds_of(1);
  const int times = once >= most_seconds ? 1 : static_cast<int>(most_seconds / (once + 1e-6)) + 1;
  const double seconds = seconds_of(times) / times;
  std::printf(
      "{\"shape\": \"%s\", \"op\": \"%s\", \"seconds\": %.9g, \"flops\": %.6g, \"bytes\": %.6g, \"times\": "
      "%d}\n",
      shape.c_str(), name, seconds, flops, bytes, times);
  std::fflush(stdout);
}

void product_of(const std::string& shape, const char* name, std::int64_t rows, std::int64_t out,
                std::int64_t in) {
  const Array<std::uint16_t> w(std::vector<std::uint16_t>(static_cast<std::size_t>(out * in), 0x3c00)),
      x(std::vector<std::uint16_t>(static_cast<std::size_t>(rows * in), 0x3d01));  // bf16
  const Array<float> y(rows * out);
  measure(shape, name, 2.0 * static_cast<double>(rows * out * in),
          4.0 * static_cast<double>(rows * out) + 2.0 * static_cast<double>(in * (rows + out)), [&] {
            device_products()->multiply(Transpose::kNo, Transpose::kYes, rows, out, in, x.data(), in,
                                        w.data(), in, 0.0f, y.data(), out);
          });
}

// A drafting step's attention, own keys included; forward and backward in both types.
void attention_of(const Shape& s, std::int64_t own_steps) {
  std::vector<AttentionSpan> spans;
  std::vector<std::int32_t> keys, own;
  double pairs = 0;  // rows and keys that meet, of one head
  for (std::int64_t first = 0; first < s.rows; first += s.document) {
    const std::int64_t end_row = std::min(first + s.document, s.rows), n = end_row - first;
    const auto begin = static_cast<std::int32_t>(first), last = static_cast<std::int32_t>(end_row);
    spans.push_back({begin, last, begin, last});
    pairs += static_cast<double>(n) * static_cast<double>(n + 1) / 2;
  }
  for (std::int64_t i = 0; i < s.rows; ++i) keys.push_back(static_cast<std::int32_t>(i));
  own = keys;
  const std::int64_t of_queries = s.rows * s.heads * s.head_dim, of_keys = s.rows * s.kv_heads * s.head_dim;
  const Array<float> q(numbers(of_queries)), k(numbers(of_keys)), v(numbers(of_keys)),
      d_out(numbers(of_queries)), out(of_queries), lse(s.rows * s.heads), dq(of_queries), dk(of_keys),
      dv(of_keys), own_k(numbers(of_keys)), own_v(numbers(of_keys)), d_own_k(of_keys), d_own_v(of_keys);
  const Array<std::int32_t> key_of_query(keys), own_index(own);
  const std::vector<const float*> own_keys(static_cast<std::size_t>(own_steps), own_k.data()),
      own_values(static_cast<std::size_t>(own_steps), own_v.data());
  const std::vector<const std::int32_t*> index(static_cast<std::size_t>(own_steps), own_index.data());
  const std::vector<float*> d_own_keys(static_cast<std::size_t>(own_steps), d_own_k.data()),
      d_own_values(static_cast<std::size_t>(own_steps), d_own_v.data());
  const AttentionInputs in{s.rows,   &spans,    key_of_query.data(), q.data(),          k.data(),
                           v.data(), own_steps, own_keys.data(),     own_values.data(), index.data()};
  const AttentionGradients g{d_out.data(), dq.data(),         dk.data(),
                             dv.data(),    d_own_keys.data(), d_own_values.data()};
  pairs += static_cast<double>(s.rows * own_steps);
  const double product = 2 * pairs * static_cast<double>(s.heads * s.head_dim);
  const double bytes = 4.0 * static_cast<double>(2 * of_queries + 2 * of_keys);
  for (const ComputeType type : {ComputeType::kBf16, ComputeType::kF32}) {
    AttentionShape shape{s.heads, s.kv_heads, s.head_dim, 0};
    shape.device_type = type;
    const std::string kind =
        std::string(type == ComputeType::kBf16 ? "bf16" : "f32") + (own_steps > 0 ? ", own keys" : "");
    measure(s.name, ("attention " + kind).c_str(), 2 * product, bytes,
            [&] { attention(shape, in, out.data(), lse.data(), nullptr, 0); });
    measure(s.name, ("attention backward " + kind).c_str(), 5 * product, 2 * bytes,
            [&] { attention_backward(shape, in, out.data(), lse.data(), g, nullptr, 0); });
    if (s.rows * s.heads > 100000) break;  // fp32 has no tensor cores: it is for checks
  }
}

void elementwise_of(const Shape& s) {
  const std::int64_t n = s.rows * s.width, of_mlp = s.rows * s.mlp;
  const double each = 4.0 * static_cast<double>(n);
  {
    const Array<float> x(numbers(n)), w(numbers(s.width)), y(n), inverse(s.rows);
    measure(s.name, "rms norm", 0, 2 * each, [&] {
      rms_norm(s.rows, s.width, x.data(), s.width, w.data(), 1e-5, y.data(), s.width, inverse.data());
    });
  }
  {
    const Array<float> gate(numbers(of_mlp)), up(numbers(of_mlp)), y(of_mlp);
    measure(s.name, "swiglu", 0, 12.0 * static_cast<double>(of_mlp),
            [&] { swiglu(s.rows, s.mlp, gate.data(), up.data(), y.data()); });
  }
}

void one_shape(const Shape& s) {
  product_of(s.name, "product: gate", s.rows, s.mlp, s.width);
  product_of(s.name, "product: head", s.rows, s.draft_vocab, s.width);
  attention_of(s, 0);
  attention_of(s, 3);
  elementwise_of(s);
}

// What everything else is a share of.
void peaks(bool tiny) {
  const std::int64_t side = tiny ? 32 : 8192, rows = tiny ? 64 : 65536, width = tiny ? 16 : 4096;
  product_of("peak", "product", side, side, side);
  std::vector<std::int32_t> turned;
  for (std::int64_t i = 0; i < rows; ++i) turned.push_back(static_cast<std::int32_t>(rows - 1 - i));
  const Array<std::int32_t> index(turned);
  const Array<float> from(rows * width), to(rows * width);
  measure("peak", "copy", 0, 8.0 * static_cast<double>(rows * width),
          [&] { gather_rows(rows, width, from.data(), index.data(), to.data()); });
}

int run(int argc, char** argv) {
  std::vector<const Shape*> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      most_seconds = std::atof(argv[++i]);
      continue;
    }
    const Shape* found = nullptr;
    for (const Shape& s : kShapes)
      if (std::strcmp(s.name, argv[i]) == 0) found = &s;
    if (found == nullptr) {
      std::fprintf(stderr, "no such shape: %s\n", argv[i]);
      return 2;
    }
    wanted.push_back(found);
  }
  if (wanted.empty()) wanted = {&kShapes[0], &kShapes[1], &kShapes[2]};
  Result<std::unique_ptr<Accelerator>> opened = open_cuda(0);
  if (!opened.ok()) {
    std::fprintf(stderr, "skipped: %s\n", opened.status().message().c_str());
    return 77;
  }
  use_cuda_ops();
  device = opened->get();
  std::printf("{\"device\": \"%s\", \"memory_bytes\": %llu}\n", device->name().c_str(),
              static_cast<unsigned long long>(device->memory_bytes()));
  peaks(std::strcmp(wanted.front()->name, "tiny") == 0);
  for (const Shape* s : wanted) one_shape(*s);
  return 0;
}

}  // namespace
}  // namespace eaglet

int main(int argc, char** argv) {
  return eaglet::run(argc, argv);
}
