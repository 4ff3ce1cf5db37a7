#pragma once

#include <cstdint>
#include <memory>

#include "device/compute_type.h"

namespace eaglet {

/// Elements of memory that products need beside their weights: operands rounded to bf16 (or, in fp32, filled
/// up with zero rows), and rows of a result that have no room where they belong.
struct ProductRoom {
  std::int64_t first = 0, second = 0, tail = 0;
  void grow(const ProductRoom& other);
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(2 * (first + second) + 4 * tail); }
};

/// That memory, which the products of one thread of work share. Grows in reserve() only. With `threads` above
/// 1 that many OpenMP threads of one parallel region may call forward() of a weight at once, each product on
/// its own thread.
class ProductWorkspace {
 public:
  explicit ProductWorkspace(int threads = 1);
  ~ProductWorkspace();
  ProductWorkspace(const ProductWorkspace&) = delete;
  ProductWorkspace& operator=(const ProductWorkspace&) = delete;
  void reserve(const ProductRoom& room);
  std::uint64_t bytes() const;
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
  ProductRoom room_;
};

/// A weight W [out, in] (rows `ldw` apart) made ready for many products with it. oneDNN reorders a weight
/// before it multiplies; for a product of few rows that costs a third of the time, so it is done once here
/// and used until the weight changes.
///
/// kF32: forward is packed when asked; the other products gain nothing from it and run as plain GEMMs.
/// kBf16: all are packed; operands are rounded to bf16 (nearest even), sums are fp32.
struct LinearWeightOptions {
  ComputeType type = ComputeType::kF32;
  bool pack_f32 = false;
  bool with_backward = true;
  /// forward() runs on tiles of so many rows (a multiple of 32, at most 256), the last filled up with zero
  /// rows; 0: of 256 rows, the last as short as it may be: filled up to a multiple of `row_step`, 32 or 16.
  std::int64_t tile_rows = 0, row_step = 32;
  bool gradients_come_rounded = false;  // in kBf16 only the ..._rounded() products are used going back
  /// The weight and all operands lie in the open device's memory: nothing is packed, rows need no room beyond
  /// n, and gradients do not come rounded.
  bool on_device = false;
};

class LinearWeight {
 public:
  /// Whatever runs on several threads gives the same bits again for the same thread count.
  LinearWeight(std::int64_t out, std::int64_t in, std::int64_t ldw, const LinearWeightOptions& options,
               ProductWorkspace* workspace);
  ~LinearWeight();
  LinearWeight(const LinearWeight&) = delete;
  LinearWeight& operator=(const LinearWeight&) = delete;

  /// Takes in the weight's present values. w must stay in place unless all that follows is a packed
  /// forward().
  void load(const float* w);
  /// forward() in fp32 with the values at w, whatever the type, until the next load(): for measuring.
  void load_exact(const float* w);
  std::uint64_t bytes() const;
  /// What bytes() will be, but for the filling of oneDNN's layouts, and what the products need of the
  /// workspace.
  static std::uint64_t packed_bytes(std::int64_t out, std::int64_t in, const LinearWeightOptions& options);
  static ProductRoom room(std::int64_t out, std::int64_t in, const LinearWeightOptions& options);

  /// Rows that x and y of forward() and of backward_input() need room for when `has_room` is said: n
  /// rounded up; what is beyond n is garbage.
  static std::int64_t padded_rows(std::int64_t n);

  /// y [n, out] = x [n, in] W^T (+ y when accumulate)
  void forward(std::int64_t n, const float* x, bool accumulate, float* y, bool has_room = false) const;
  /// dx [n, in] = dy [n, out] W (+ dx when accumulate)
  void backward_input(std::int64_t n, const float* dy, bool accumulate, float* dx,
                      bool has_room = false) const;
  /// In kBf16 a gradient that is rounded already spares the rounding of both products that read it (the
  /// logits' gradient is by far the largest operand there is).
  bool takes_rounded() const;
  /// Rows that a rounded dy needs room for.
  static std::int64_t padded_depth(std::int64_t n);
  /// backward_input() with room for dx.
  void backward_input_rounded(std::int64_t n, const std::uint16_t* dy, float* dx) const;
  /// backward_weight(); rows beyond n of dy become zero.
  void backward_weight_rounded(std::int64_t n, std::uint16_t* dy, const float* x, float* dw) const;
  /// dW [out, in], rows ldw apart, += dy^T [out, n] x [n, in]
  void backward_weight(std::int64_t n, const float* dy, const float* x, float* dw) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace eaglet
