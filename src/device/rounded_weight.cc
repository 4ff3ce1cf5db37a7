#include "device/rounded_weight.h"

#include "device/device_products.h"

namespace eaglet {
namespace {

const DeviceProducts* open_products = nullptr;

}  // namespace

void set_device_products(const DeviceProducts* products) {
  open_products = products;
}
const DeviceProducts* device_products() {
  return open_products;
}

RoundedRoom::~RoundedRoom() {
  for (std::uint16_t* memory : memory_)
    if (memory != nullptr) open_products->give_back(memory);
}

const std::uint16_t* RoundedRoom::round(std::size_t place, std::int64_t n, std::int64_t width,
                                        const float* from) {
  const std::uint64_t wanted = 2 * static_cast<std::uint64_t>(n * width);
  if (wanted > bytes_[place]) {
    if (memory_[place] != nullptr) open_products->give_back(memory_[place]);  // waits for its readers
    memory_[place] = static_cast<std::uint16_t*>(open_products->take(wanted));
    bytes_[place] = memory_[place] == nullptr ? 0 : wanted;
  }
  if (memory_[place] != nullptr) open_products->round(n, width, from, width, memory_[place]);
  return memory_[place];
}

RoundedWeight::RoundedWeight(std::int64_t out, std::int64_t in, std::int64_t ldw, RoundedRoom* room)
    : out_(out), in_(in), ldw_(ldw), room_(room) {}

RoundedWeight::~RoundedWeight() {
  if (values_ != nullptr) open_products->give_back(values_);
}

void RoundedWeight::load(const float* w) {
  if (values_ == nullptr) values_ = static_cast<std::uint16_t*>(open_products->take(bytes()));
  if (values_ != nullptr) open_products->round(out_, in_, w, ldw_, values_);
}

void RoundedWeight::forward(std::int64_t n, const float* x, bool accumulate, float* y) const {
  if (n == 0 || values_ == nullptr) return;
  const std::uint16_t* rounded = room_->round(0, n, in_, x);
  if (rounded == nullptr) return;
  open_products->multiply(Transpose::kNo, Transpose::kYes, n, out_, in_, rounded, in_, values_, in_,
                          accumulate ? 1.0f : 0.0f, y, out_);
}

void RoundedWeight::backward_input(std::int64_t n, const float* dy, bool accumulate, float* dx) const {
  if (n == 0 || values_ == nullptr) return;
  const std::uint16_t* rounded = room_->round(0, n, out_, dy);
  if (rounded == nullptr) return;
  open_products->multiply(Transpose::kNo, Transpose::kNo, n, in_, out_, rounded, out_, values_, in_,
                          accumulate ? 1.0f : 0.0f, dx, in_);
}

void RoundedWeight::backward_weight(std::int64_t n, const float* dy, const float* x, float* dw) const {
  if (n == 0) return;
  const std::uint16_t *rounded_dy = room_->round(0, n, out_, dy), *rounded_x = room_->round(1, n, in_, x);
  if (rounded_dy == nullptr || rounded_x == nullptr) return;
  open_products->multiply(Transpose::kYes, Transpose::kNo, out_, in_, n, rounded_dy, out_, rounded_x, in_,
                          1.0f, dw, ldw_);
}

}  // namespace eaglet
