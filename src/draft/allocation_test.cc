#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "draft/golden_file.h"
#include "ops/adamw.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

// oneDNN makes its own lists when a product runs; what is asked of us is our own code.
bool is_from_onednn(void* caller) {
  Dl_info info = {};
  return dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

void* take(std::size_t bytes, void* caller) {
  if (counting && !is_from_onednn(caller)) ++allocations;
  if (void* memory = std::malloc(bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}
}  // namespace

// Every new of this test program comes through here.
void* operator new(std::size_t bytes) {
  return take(bytes, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return take(bytes, __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace eaglet {
namespace {

int allocations_of_a_step(const golden::Golden& g, const TttOptions& options, bool with_gradients) {
  auto model = DraftModel::create(g.weights, g.verifier(), options,
                                  static_cast<std::int64_t>(g.input_ids.size()), true);
  EXPECT_TRUE(model.ok());
  const auto n = static_cast<std::size_t>((*model)->trainable_elements());
  std::vector<float> first(n), second(n);
  const DraftInputs inputs = g.inputs();
  StepSums sums;
  for (int step = 0; step < 3; ++step) {  // the first ones size the lists and compile the products
    allocations = 0;
    counting = step == 2;
    const bool ok = (*model)->step(inputs, with_gradients, &sums, nullptr).ok();
    const double norm = l2_norm((*model)->trainable_elements(), (*model)->gradients().data());
    adamw((*model)->trainable_elements(), (*model)->weights().values.data(), (*model)->gradients().data(),
          first.data(), second.data(), 1.0 / (norm + 1), 1e-4, step + 1, {});
    counting = false;
    EXPECT_TRUE(ok);
  }
  return allocations;
}

TEST(golden, AStepAllocatesNothing) {
  for (const std::string& path : golden::files()) {
    const golden::Golden g = golden::load(path);
    for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16})
      for (const std::int64_t chunk_rows : {0, 5}) {
        SCOPED_TRACE(path + " " + compute_type_name(type) + " " + std::to_string(chunk_rows));
        TttOptions options = g.options;
        options.compute_type = type;
        options.chunk_rows = chunk_rows;
        EXPECT_EQ(allocations_of_a_step(g, options, true), 0);
        EXPECT_EQ(allocations_of_a_step(g, options, false), 0);
      }
  }
}

TEST(golden, AllocationsAreReallyCounted) {
  counting = true;
  allocations = 0;
  const std::vector<int> some(100);
  counting = false;
  EXPECT_GE(allocations, 1);
  EXPECT_EQ(some.size(), 100u);
}

}  // namespace
}  // namespace eaglet
