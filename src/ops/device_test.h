#pragma once

// For tests of ops on a device (*_device_test.cc). They name no device library: the same files run on the
// CUDA emulation and on a real device.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "device/accelerator.h"
#include "ops/device_ops.h"

namespace eaglet::test {

/// The device that all tests of a program use; nullptr: there is none, and they are skipped.
inline std::unique_ptr<Accelerator>& shared_accelerator() {
  static std::unique_ptr<Accelerator> device;
  return device;
}
inline Accelerator* accelerator() {
  return shared_accelerator().get();
}
inline void set_accelerator(std::unique_ptr<Accelerator> device) {
  shared_accelerator() = std::move(device);
}

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (accelerator() == nullptr) GTEST_SKIP() << "no device";
  }
  void TearDown() override {
    if (accelerator() == nullptr) return;
    const Status status = accelerator()->wait();
    EXPECT_TRUE(status.ok()) << status.message();
  }
};

/// An array in the device's memory. It ends where its allocation ends, so that a write beyond it is seen.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    Result<void*> memory = accelerator()->take(count_ * sizeof(T));
    if (!memory.ok()) throw std::runtime_error(memory.status().message());  // fails the test
    data_ = static_cast<T*>(*memory);
    accelerator()->to_device(data_, values.data(), count_ * sizeof(T));
  }
  explicit DeviceArray(std::int64_t n)
      : DeviceArray(std::vector<T>(static_cast<std::size_t>(n), T(__builtin_nanf("")))) {}
  ~DeviceArray() { accelerator()->give_back(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    accelerator()->to_host(values.data(), data_, count_ * sizeof(T));
    return values;
  }

 private:
  std::size_t count_ = 0;
  T* data_ = nullptr;
};
using DeviceFloats = DeviceArray<float>;
using DeviceInts = DeviceArray<std::int32_t>;

/// What body() returns, after it gave the same bits twice: threads run in another order every time.
inline std::vector<std::vector<float>> twice(const std::function<std::vector<std::vector<float>>()>& body) {
  const std::vector<std::vector<float>> first = body(), second = body();
  EXPECT_EQ(first, second) << "two runs differ";
  return first;
}

}  // namespace eaglet::test
