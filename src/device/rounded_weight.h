#pragma once

#include <array>
#include <cstdint>

namespace eaglet {

/// Device memory for two operands rounded to bf16, shared by products that run one after another. Grows to
/// what the largest batch wants, which happens in the first steps.
class RoundedRoom {
 public:
  RoundedRoom() = default;
  ~RoundedRoom();
  RoundedRoom(const RoundedRoom&) = delete;
  RoundedRoom& operator=(const RoundedRoom&) = delete;
  /// from [n, width], rounded, in place 0 or 1; nullptr when the device has no more memory.
  const std::uint16_t* round(std::size_t place, std::int64_t n, std::int64_t width, const float* from);
  std::uint64_t bytes() const { return bytes_[0] + bytes_[1]; }

 private:
  std::array<std::uint16_t*, 2> memory_ = {nullptr, nullptr};
  std::array<std::uint64_t, 2> bytes_ = {0, 0};
};

/// A weight W [out, in] on a device, rounded to bf16 once for many products: LinearWeight's bf16 form there.
/// fp32 needs none: gemm() runs where its result lies.
class RoundedWeight {
 public:
  RoundedWeight(std::int64_t out, std::int64_t in, std::int64_t ldw, RoundedRoom* room);
  ~RoundedWeight();
  RoundedWeight(const RoundedWeight&) = delete;
  RoundedWeight& operator=(const RoundedWeight&) = delete;

  void load(const float* w);
  void forward(std::int64_t n, const float* x, bool accumulate, float* y) const;
  void backward_input(std::int64_t n, const float* dy, bool accumulate, float* dx) const;
  void backward_weight(std::int64_t n, const float* dy, const float* x, float* dw) const;
  std::uint64_t bytes() const { return 2 * static_cast<std::uint64_t>(out_ * in_); }

 private:
  const std::int64_t out_, in_, ldw_;
  RoundedRoom* const room_;
  std::uint16_t* values_ = nullptr;
};

}  // namespace eaglet
