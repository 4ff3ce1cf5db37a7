// The stand-in for cuBLASLt refuses what the library would answer with garbage, or with a crash.

#include "device/cublas_lt.h"

#include <gtest/gtest.h>

#include <vector>

#include "cuda_runtime.h"
#include "emulation.h"

namespace {

using namespace eaglet::cublas_lt;

// One right product of 2 x 3 by 3 x 4 (column-major), of which each test spoils one thing.
class StandIn : public testing::Test {
 protected:
  void SetUp() override {
    emulation::reset();
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    calls_ = *load();
    ASSERT_EQ(calls_->create(&handle_), kSuccess);
    ASSERT_EQ(calls_->desc_create(&desc_, kCompute32F, kF32), kSuccess);
    ASSERT_EQ(calls_->layout_create(&a_layout_, kF32, 2, 3, 2), kSuccess);
    ASSERT_EQ(calls_->layout_create(&b_layout_, kF32, 3, 4, 3), kSuccess);
    ASSERT_EQ(calls_->layout_create(&d_layout_, kF32, 2, 4, 2), kSuccess);
    ASSERT_EQ(calls_->preference_create(&preference_), kSuccess);
    a_ = floats(7);
    b_ = floats(12);
    d_ = floats(8);
    workspace_ = floats(workspace_bytes_ / 4);
  }
  void TearDown() override {
    emulation::reset();
    calls_->destroy(handle_);
    calls_->desc_destroy(desc_);
    for (void* layout : {a_layout_, b_layout_, d_layout_}) calls_->layout_destroy(layout);
    calls_->preference_destroy(preference_);
    EXPECT_EQ(emulation::live_library_objects(), 0);
    cudaStreamDestroy(stream_);
  }
  static float* floats(std::size_t n) {
    void* memory = nullptr;
    cudaMalloc(&memory, n * sizeof(float));
    return static_cast<float*>(memory);
  }
  void prefer(std::uint32_t alignment) {
    const std::uint64_t bytes = workspace_bytes_;
    EXPECT_EQ(calls_->preference_set(preference_, kPreferMaxWorkspaceBytes, &bytes, sizeof bytes), kSuccess);
    for (int attribute = kPreferAlignmentA; attribute <= kPreferAlignmentD; ++attribute)
      EXPECT_EQ(calls_->preference_set(preference_, attribute, &alignment, sizeof alignment), kSuccess);
  }
  int choose() {
    int found = 0;
    return calls_->heuristic(handle_, desc_, a_layout_, b_layout_, d_layout_, d_layout_, preference_, 1,
                             &chosen_, &found);
  }
  int run() {
    const float one = 1, zero = 0;
    return calls_->matmul(handle_, desc_, &one, a_, a_layout_, b_, b_layout_, &zero, d_, d_layout_, d_,
                          d_layout_, &chosen_.algo, workspace_, given_bytes_, stream_);
  }

  cudaStream_t stream_ = nullptr;
  const Functions* calls_ = nullptr;
  void *handle_ = nullptr, *desc_ = nullptr, *a_layout_ = nullptr, *b_layout_ = nullptr, *d_layout_ = nullptr;
  void* preference_ = nullptr;
  float *a_ = nullptr, *b_ = nullptr, *d_ = nullptr, *workspace_ = nullptr;
  std::size_t workspace_bytes_ = 64 << 10, given_bytes_ = 64 << 10;
  Heuristic chosen_ = {};
};

TEST_F(StandIn, ARightProductRuns) {
  prefer(16);
  EXPECT_EQ(choose(), kSuccess);
  EXPECT_EQ(run(), kSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(emulation::faults().empty());
}
TEST_F(StandIn, PointersAreAsAlignedAsWasSaid) {
  prefer(16);
  EXPECT_EQ(choose(), kSuccess);
  a_ += 1;
  EXPECT_NE(run(), kSuccess);
}
TEST_F(StandIn, OfAlignmentNobodySaidAnythingSoItIs256) {
  EXPECT_EQ(choose(), kSuccess);
  EXPECT_NE(run(), kSuccess);  // the emulation's memory ends at a page, and begins anywhere
}
TEST_F(StandIn, AnAlgorithmBelongsToItsProduct) {
  prefer(4);
  EXPECT_EQ(choose(), kSuccess);
  void* other = nullptr;
  EXPECT_EQ(calls_->layout_create(&other, kF32, 2, 3, 4), kSuccess);
  std::swap(other, a_layout_);
  a_ = floats(12);
  EXPECT_NE(run(), kSuccess);
  calls_->layout_destroy(other);
}
TEST_F(StandIn, MatricesLieInTheirMemoryAsAWhole) {
  prefer(4);
  EXPECT_EQ(choose(), kSuccess);
  b_ += 1;
  EXPECT_NE(run(), kSuccess);
}
TEST_F(StandIn, TheWorkspaceIsAsLargeAsTheAlgorithmWants) {
  prefer(4);
  EXPECT_EQ(choose(), kSuccess);
  given_bytes_ = 1 << 10;
  EXPECT_NE(run(), kSuccess);
}
TEST_F(StandIn, ShapesAndTypesFit) {
  prefer(4);
  const int turned = kTranspose;
  EXPECT_EQ(calls_->desc_set(desc_, kDescTransA, &turned, sizeof turned), kSuccess);
  EXPECT_NE(choose(), kSuccess);
  emulation::reset();
  void* layout = nullptr;
  EXPECT_NE(calls_->layout_create(&layout, kF32, 5, 2, 4), kSuccess);
  emulation::reset();
  EXPECT_NE(calls_->layout_create(&layout, kF32, 0, 2, 4), kSuccess);
}
TEST_F(StandIn, MemoryThatWasGivenBackIsNotRead) {
  prefer(4);
  EXPECT_EQ(choose(), kSuccess);
  cudaFree(b_);
  EXPECT_NE(run(), kSuccess);
}
TEST_F(StandIn, NothingRunsOnTheDefaultStream) {
  prefer(4);
  EXPECT_EQ(choose(), kSuccess);
  stream_ = nullptr;
  EXPECT_NE(run(), kSuccess);
}

}  // namespace
