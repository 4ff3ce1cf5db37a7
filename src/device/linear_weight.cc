#include "device/linear_weight.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "device/bf16_rounding.h"
#include "device/gemm.h"
#include "device/onednn_product.h"
#include "device/rounded_weight.h"
#include "device/threads.h"

namespace eaglet {
namespace {

using onednn::engine;
using onednn::Layout;
using onednn::matrix;
using onednn::product;
using onednn::Program;
using onednn::rows_apart;
using onednn::stream;
using onednn::Type;
using onednn::type_of;

// Products run on blocks of rows, so that there are few shapes and a program for each is made only once.
constexpr std::int64_t kBlockRows = 256, kRowStep = 32, kLeastRowStep = 16;
// The inner dimension of a weight gradient is the number of rows; it is filled up with zero rows.
constexpr std::int64_t kBlockDepth = 1024, kDepthStep = 128;

std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

// Programs by number of steps of rows and by whether they add.
template <std::size_t kSizes>
using Programs = std::array<std::array<std::unique_ptr<Program>, 2>, kSizes + 1>;

// Where a product finds its program among `count`: one for products that all threads share, one for each
// thread of a parallel region. oneDNN makes a program for as many threads as there are where it is made.
std::size_t this_program(std::size_t count) {
  if (count == 1 || !omp_in_parallel()) return 0;
  return std::min(count - 1, 1 + static_cast<std::size_t>(omp_get_thread_num()));
}

// Where an OpenMP thread finds what is its own among `count`.
std::size_t this_thread(std::size_t count) {
  return count == 1 ? 0 : std::min(count - 1, static_cast<std::size_t>(omp_get_thread_num()));
}

// A weight reordered for y [n, columns] = x [n, depth] B with B [depth, columns].
class PackedOperand {
 public:
  PackedOperand(std::int64_t depth, std::int64_t columns, ComputeType type, std::size_t threads)
      : programs_(threads > 1 ? threads + 1 : 1),
        depth_(depth),
        columns_(columns),
        type_(type_of(type)),
        layout_(product(matrix(kBlockRows, depth, type_, Layout::ab),
                        matrix(depth, columns, type_, Layout::any),
                        matrix(kBlockRows, columns, Type::f32, Layout::ab), false, threads > 1)
                    .weights_desc()),
        packed_(layout_, engine()) {}

  void load(const dnnl::memory::desc& source, const float* w) {
    if (reorder_ == nullptr) {
      from_ = dnnl::memory(source, engine(), nullptr);
      reorder_ = std::make_unique<dnnl::reorder>(from_, packed_);
      arguments_ = {{{DNNL_ARG_FROM, from_.get()}, {DNNL_ARG_TO, packed_.get()}}};
    }
    from_.set_data_handle(const_cast<float*>(w));
    dnnl_primitive_execute(reorder_->get(), stream().get(), static_cast<int>(arguments_.size()),
                           arguments_.data());
    stream().wait();
  }

  // Of this thread, or of all together: a program's memory objects are its own.
  Program& program(std::int64_t rows, bool accumulate) {
    auto& slot = programs_[this_program(programs_.size())][static_cast<std::size_t>(rows / kLeastRowStep)]
                          [accumulate ? 1 : 0];
    if (slot == nullptr)
      slot = std::make_unique<Program>(product(matrix(rows, depth_, type_, Layout::ab), layout_,
                                               matrix(rows, columns_, Type::f32, Layout::ab), accumulate,
                                               programs_.size() > 1));
    return *slot;
  }
  const void* data() const { return packed_.get_data_handle(); }
  std::uint64_t bytes() const { return layout_.get_size(); }

 private:
  std::vector<Programs<kBlockRows / kLeastRowStep>> programs_;  // by thread
  std::int64_t depth_, columns_;
  Type type_;
  dnnl::memory::desc layout_;
  dnnl::memory packed_, from_;
  std::unique_ptr<dnnl::reorder> reorder_;
  std::array<dnnl_exec_arg_t, 2> arguments_;
};

struct Rooms {
  std::vector<std::uint16_t> first, second;  // rounded operands
  std::vector<float> tail;                   // rows that have no room where they belong
};

}  // namespace

struct ProductWorkspace::Impl {
  std::vector<Rooms> of_thread;
  RoundedRoom on_device;
  Rooms& here() { return of_thread[this_thread(of_thread.size())]; }
};

ProductWorkspace::ProductWorkspace(int threads) : impl_(std::make_unique<Impl>()) {
  impl_->of_thread.resize(static_cast<std::size_t>(std::max(1, threads)));
}
std::uint64_t ProductWorkspace::bytes() const {
  return impl_->of_thread.size() * room_.bytes() + impl_->on_device.bytes();
}
ProductWorkspace::~ProductWorkspace() = default;
void ProductRoom::grow(const ProductRoom& other) {
  first = std::max(first, other.first);
  second = std::max(second, other.second);
  tail = std::max(tail, other.tail);
}
void ProductWorkspace::reserve(const ProductRoom& room) {
  room_.grow(room);
  for (Rooms& rooms : impl_->of_thread) {
    rooms.first.resize(static_cast<std::size_t>(room_.first));
    rooms.second.resize(static_cast<std::size_t>(room_.second));
    rooms.tail.resize(static_cast<std::size_t>(room_.tail));
  }
}

struct LinearWeight::Impl {
  std::int64_t out, in, ldw;
  ComputeType type;
  ProductWorkspace::Impl& workspace;
  const float* values = nullptr;
  bool exact = false;  // plain products with `values`
  std::int64_t tile_rows, row_step;
  std::unique_ptr<PackedOperand> for_forward, for_backward;
  std::unique_ptr<RoundedWeight> rounded;  // on a device, in bf16
  dnnl::memory::desc as_columns, as_rows;  // W [out, in] read as [in, out], and as it lies
  Programs<kBlockDepth / kDepthStep> gradients;

  Impl(std::int64_t out_width, std::int64_t in_width, std::int64_t distance,
       const LinearWeightOptions& options, ProductWorkspace* shared)
      : out(out_width),
        in(in_width),
        ldw(distance),
        type(options.type),
        workspace(shared->impl()),
        tile_rows(options.tile_rows > 0 ? options.tile_rows : kBlockRows),
        row_step(options.tile_rows > 0 ? options.tile_rows : options.row_step) {
    const bool bf16 = type == ComputeType::kBf16;
    if (options.on_device) {
      if (bf16) rounded = std::make_unique<RoundedWeight>(out, in, ldw, &workspace.on_device);
      return;
    }
    as_columns = dnnl::memory::desc({in, out}, Type::f32, dnnl::memory::dims{1, ldw});
    as_rows = rows_apart(out, in, Type::f32, ldw);
    if (!bf16 && !options.pack_f32) return;
    const std::size_t threads = workspace.of_thread.size();
    for_forward = std::make_unique<PackedOperand>(in, out, type, threads);
    if (bf16 && options.with_backward) for_backward = std::make_unique<PackedOperand>(out, in, type, threads);
    shared->reserve(room(out, in, options));
  }

  // y [n, columns] (+)= x [n, depth] times a packed operand, block by block.
  void multiply(PackedOperand& operand, std::int64_t n, std::int64_t depth, std::int64_t columns,
                const float* x, bool accumulate, float* y, bool has_room) {
    has_room = has_room && row_step == kRowStep;
    Rooms& room_of = workspace.here();
    for (std::int64_t first = 0; first < n; first += tile_rows) {
      const std::int64_t rows = std::min(tile_rows, n - first), padded = round_up(rows, row_step);
      const void* from = x + first * depth;
      if (type == ComputeType::kBf16) {
        round_to_bf16(rows * depth, x + first * depth, room_of.first.data());
        std::fill_n(room_of.first.data() + rows * depth, (padded - rows) * depth, 0);
        from = room_of.first.data();
      } else if (padded > rows && !has_room) {  // no reading beyond x either
        pad_rows(rows, padded, depth, x + first * depth, &room_of);
        from = room_of.second.data();
      }
      float* to = y + first * columns;
      if (padded == rows || has_room) {
        operand.program(padded, accumulate)(from, operand.data(), to);
        continue;
      }
      operand.program(padded, false)(from, operand.data(), room_of.tail.data());
      put_rows(rows * columns, accumulate, room_of.tail.data(), to);
    }
  }

  // fp32 rows copied to where rows of zeros can follow: the bf16 memory, which fp32 does not use.
  static void pad_rows(std::int64_t rows, std::int64_t padded, std::int64_t depth, const float* x,
                       Rooms* room_of) {
    float* to = reinterpret_cast<float*>(room_of->second.data());
    std::memcpy(to, x, static_cast<std::size_t>(rows * depth) * sizeof(float));
    std::fill_n(to + rows * depth, (padded - rows) * depth, 0.0f);
  }

  static void put_rows(std::int64_t elements, bool accumulate, const float* from, float* to) {
    if (!accumulate) {
      std::memcpy(to, from, static_cast<std::size_t>(elements) * sizeof(float));
      return;
    }
    for (std::int64_t i = 0; i < elements; ++i) to[i] += from[i];
  }

  Program& gradient(std::int64_t depth) {
    auto& slot = gradients[static_cast<std::size_t>(depth / kDepthStep)][1];
    if (slot == nullptr)
      slot = std::make_unique<Program>(product(matrix(out, depth, Type::bf16, Layout::ba),
                                               matrix(depth, in, Type::bf16, Layout::ab),
                                               rows_apart(out, in, Type::f32, ldw), true));
    return *slot;
  }

  void add_gradient(std::int64_t n, const float* dy, const float* x, float* dw) {
    for (std::int64_t first = 0; first < n; first += kBlockDepth) {
      const std::int64_t rows = std::min(kBlockDepth, n - first);
      round_to_bf16(rows * out, dy + first * out, workspace.here().first.data());
      add_rounded_gradient(rows, workspace.here().first.data(), x + first * in, dw);
    }
  }

  void add_rounded_gradient(std::int64_t rows, std::uint16_t* dy, const float* x, float* dw) {
    const std::int64_t padded = round_up(rows, kDepthStep);
    round_to_bf16(rows * in, x, workspace.here().second.data());
    std::fill_n(dy + rows * out, (padded - rows) * out, 0);
    std::fill_n(workspace.here().second.data() + rows * in, (padded - rows) * in, 0);
    gradient(padded)(dy, workspace.here().second.data(), dw);
  }

  void multiply_rounded(std::int64_t n, const std::uint16_t* dy, float* dx) {
    for (std::int64_t first = 0; first < n; first += kBlockRows) {
      const std::int64_t padded = round_up(std::min(kBlockRows, n - first), kRowStep);
      for_backward->program(padded, false)(dy + first * out, for_backward->data(), dx + first * in);
    }
  }
};

LinearWeight::LinearWeight(std::int64_t out, std::int64_t in, std::int64_t ldw,
                           const LinearWeightOptions& options, ProductWorkspace* workspace) {
  num_threads();  // makes sure OpenMP, which oneDNN follows, has our thread count
  impl_ = std::make_unique<Impl>(out, in, ldw, options, workspace);
}
LinearWeight::~LinearWeight() = default;

std::uint64_t LinearWeight::packed_bytes(std::int64_t out, std::int64_t in,
                                         const LinearWeightOptions& options) {
  const auto elements = static_cast<std::uint64_t>(out * in);
  if (options.on_device) return options.type == ComputeType::kBf16 ? 2 * elements : 0;
  if (options.type == ComputeType::kBf16) return 2 * elements * (options.with_backward ? 2 : 1);
  return options.pack_f32 ? 4 * elements : 0;
}

ProductRoom LinearWeight::room(std::int64_t out, std::int64_t in, const LinearWeightOptions& options) {
  if (options.on_device) return {};  // grows by itself
  const std::int64_t wide = std::max(out, in), tile = options.tile_rows > 0 ? options.tile_rows : kBlockRows;
  if (options.type == ComputeType::kF32)
    return options.pack_f32 ? ProductRoom{0, 2 * tile * in, tile * out} : ProductRoom();
  if (!options.with_backward) return {tile * in, 0, tile * out};
  if (options.gradients_come_rounded) return {kBlockRows * in, kBlockDepth * in, kBlockRows * out};
  return {std::max(kBlockDepth * out, kBlockRows * wide), kBlockDepth * in, kBlockRows * wide};
}

void LinearWeight::load(const float* w) {
  impl_->values = w;
  impl_->exact = false;
  if (impl_->rounded != nullptr) impl_->rounded->load(w);
  if (impl_->for_forward != nullptr) impl_->for_forward->load(impl_->as_columns, w);
  if (impl_->for_backward != nullptr) impl_->for_backward->load(impl_->as_rows, w);
}

void LinearWeight::load_exact(const float* w) {
  impl_->values = w;
  impl_->exact = true;
}

std::uint64_t LinearWeight::bytes() const {
  if (impl_->rounded != nullptr) return impl_->rounded->bytes();
  return (impl_->for_forward == nullptr ? 0 : impl_->for_forward->bytes()) +
         (impl_->for_backward == nullptr ? 0 : impl_->for_backward->bytes());
}

std::int64_t LinearWeight::padded_rows(std::int64_t n) {
  return round_up(n, kRowStep);
}

void LinearWeight::forward(std::int64_t n, const float* x, bool accumulate, float* y, bool has_room) const {
  if (impl_->rounded != nullptr && !impl_->exact) {
    impl_->rounded->forward(n, x, accumulate, y);
    return;
  }
  if (impl_->for_forward != nullptr && !impl_->exact) {
    impl_->multiply(*impl_->for_forward, n, impl_->in, impl_->out, x, accumulate, y, has_room);
    return;
  }
  gemm(Transpose::kNo, Transpose::kYes, n, impl_->out, impl_->in, 1.0f, x, impl_->in, impl_->values,
       impl_->ldw, accumulate ? 1.0f : 0.0f, y, impl_->out);
}

void LinearWeight::backward_input(std::int64_t n, const float* dy, bool accumulate, float* dx,
                                  bool has_room) const {
  if (impl_->rounded != nullptr && !impl_->exact) {
    impl_->rounded->backward_input(n, dy, accumulate, dx);
    return;
  }
  if (impl_->for_backward != nullptr && !impl_->exact) {
    impl_->multiply(*impl_->for_backward, n, impl_->out, impl_->in, dy, accumulate, dx, has_room);
    return;
  }
  gemm(Transpose::kNo, Transpose::kNo, n, impl_->in, impl_->out, 1.0f, dy, impl_->out, impl_->values,
       impl_->ldw, accumulate ? 1.0f : 0.0f, dx, impl_->in);
}

bool LinearWeight::takes_rounded() const {
  return impl_->for_backward != nullptr && !impl_->exact;
}
std::int64_t LinearWeight::padded_depth(std::int64_t n) {
  return round_up(n, kDepthStep);
}

void LinearWeight::backward_input_rounded(std::int64_t n, const std::uint16_t* dy, float* dx) const {
  impl_->multiply_rounded(n, dy, dx);
}

void LinearWeight::backward_weight_rounded(std::int64_t n, std::uint16_t* dy, const float* x,
                                           float* dw) const {
  for (std::int64_t first = 0; first < n; first += kBlockDepth)
    impl_->add_rounded_gradient(std::min(kBlockDepth, n - first), dy + first * impl_->out,
                                x + first * impl_->in, dw);
}

void LinearWeight::backward_weight(std::int64_t n, const float* dy, const float* x, float* dw) const {
  if (n == 0) return;
  if (impl_->rounded != nullptr && !impl_->exact) {
    impl_->rounded->backward_weight(n, dy, x, dw);
    return;
  }
  if (impl_->type == ComputeType::kBf16 && !impl_->exact) {
    impl_->add_gradient(n, dy, x, dw);
    return;
  }
  gemm(Transpose::kYes, Transpose::kNo, impl_->out, impl_->in, n, 1.0f, dy, impl_->out, x, impl_->in, 1.0f,
       dw, impl_->ldw);
}

}  // namespace eaglet
