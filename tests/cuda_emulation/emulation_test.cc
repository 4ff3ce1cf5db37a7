// The emulation finds what it is there to find: every test plants a fault and wants it told, or shows that
// right code gives right results whatever the order of threads.

#include "emulation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "device/cuda_tensor_core.h"

namespace {

constexpr int kThreads = 96;

class Emulation : public testing::Test {
 protected:
  void SetUp() override {
    emulation::reset();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    emulation::reset();
    cudaStreamDestroy(stream_);
  }

  float* device_floats(std::size_t n) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, n * sizeof(float)), cudaSuccess);
    return static_cast<float*>(memory);
  }
  float* pinned_floats(std::size_t n) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMallocHost(&memory, n * sizeof(float)), cudaSuccess);
    return static_cast<float*>(memory);
  }
  std::vector<float> read(const float* from, std::size_t n) {
    float* host = pinned_floats(n);
    cudaMemcpyAsync(host, from, n * sizeof(float), cudaMemcpyDeviceToHost, stream_);
    cudaStreamSynchronize(stream_);
    std::vector<float> values(host, host + n);
    cudaFreeHost(host);
    return values;
  }
  template <class... P, class... A>
  cudaError_t run(void (*kernel)(P...), dim3 grid, dim3 block, A... arguments) {
    cudaLaunchConfig_t config;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes_;
    config.stream = stream_;
    emulation::name_next_launch("planted");
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
    return error != cudaSuccess ? error : cudaStreamSynchronize(stream_);
  }
  static std::string told() {
    std::string all;
    for (const std::string& fault : emulation::faults()) all += fault + "\n";
    return all;
  }

  cudaStream_t stream_ = nullptr;
  std::size_t shared_bytes_ = 0;
};

// Every thread hands its number to its left neighbour through shared memory.
__global__ void rotate(float* to, bool with_barrier) {
  EAGLET_SHARED_ARRAY(float, values, kThreads);
  const int i = static_cast<int>(threadIdx.x);
  values[i] = static_cast<float>(i);
  if (with_barrier) __syncthreads();
  to[i] = values[(i + 1) % kThreads];
}

// Two rounds in the same array. Without the barrier between them the second may overwrite what somebody
// still has to read.
__global__ void two_rounds(float* to, bool with_barrier) {
  EAGLET_SHARED_ARRAY(float, values, kThreads);
  const int i = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    values[i] = static_cast<float>(i + 1000 * round);
    __syncthreads();
    sum += values[kThreads - 1 - i];
    if (with_barrier) __syncthreads();
  }
  to[i] = sum;
}

TEST_F(Emulation, AMissingBarrierShowsAndARightKernelAgreesWithItselfInEveryOrder) {
  float* to = device_floats(kThreads);
  int wrong_rotations = 0, wrong_rounds = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    emulation::set_seed(seed);
    std::vector<float> rotated(kThreads), summed(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      rotated[static_cast<std::size_t>(i)] = static_cast<float>((i + 1) % kThreads);
      summed[static_cast<std::size_t>(i)] = static_cast<float>(1000 + 2 * (kThreads - 1 - i));
    }
    run(rotate, 1, kThreads, to, true);
    EXPECT_EQ(read(to, kThreads), rotated);
    run(two_rounds, 1, kThreads, to, true);
    EXPECT_EQ(read(to, kThreads), summed);
    run(rotate, 1, kThreads, to, false);
    wrong_rotations += read(to, kThreads) != rotated ? 1 : 0;
    run(two_rounds, 1, kThreads, to, false);
    wrong_rounds += read(to, kThreads) != summed ? 1 : 0;
  }
  EXPECT_EQ(told(), "");
  EXPECT_EQ(wrong_rotations, 10);
  EXPECT_GE(wrong_rounds, 9);
}

__global__ void write_at(float* to, int offset) {
  to[offset] = 1;
}
TEST_F(Emulation, WritesBeyondAnAllocationAreTold) {
  for (const int offset : {100, -1000, 103}) {
    emulation::reset();
    float* to = device_floats(100);
    EXPECT_EQ(run(write_at, 1, 1, to, offset), cudaErrorLaunchFailure);
    EXPECT_NE(told().find("beyond the ends of device memory"), std::string::npos) << told();
    EXPECT_NE(told().find("planted, block (0,0,0), thread (0,0,0)"), std::string::npos) << told();
  }
}
TEST_F(Emulation, WritesIntoTheFillingBehindAnAllocationAreToldWhenItIsGivenBack) {
  float* to = device_floats(99);
  EXPECT_EQ(run(write_at, 1, 1, to, 99), cudaSuccess);
  EXPECT_EQ(cudaFree(to), cudaErrorLaunchFailure);
  EXPECT_NE(told().find("overwritten"), std::string::npos) << told();
}
TEST_F(Emulation, UseAfterFreeAndFreeingTwiceAreTold) {
  float* to = device_floats(100);
  EXPECT_EQ(cudaFree(to), cudaSuccess);
  EXPECT_EQ(run(write_at, 1, 1, to, 0), cudaErrorInvalidValue);
  emulation::reset();
  to = device_floats(100);
  EXPECT_EQ(cudaFree(to), cudaSuccess);
  EXPECT_EQ(cudaFree(to), cudaErrorInvalidValue);
}

__global__ void write_shared(int offset) {
  EAGLET_SHARED_ARRAY(float, values, 4);
  values[offset] = 1;
}
__global__ void write_dynamic(int offset) {
  EAGLET_DYNAMIC_SHARED(float, values);
  values[offset] = 1;
}
TEST_F(Emulation, WritesBeyondSharedMemoryAreTold) {
  EXPECT_EQ(run(write_shared, 1, 1, 3), cudaSuccess);
  EXPECT_EQ(run(write_shared, 1, 1, 4), cudaErrorLaunchFailure);
  emulation::reset();
  shared_bytes_ = 64;
  EXPECT_EQ(run(write_dynamic, 1, 1, 15), cudaSuccess);
  EXPECT_EQ(run(write_dynamic, 1, 1, 16), cudaErrorLaunchFailure);
}

__global__ void read_unwritten(float* to) {
  EAGLET_SHARED_ARRAY(float, values, 4);
  to[blockIdx.x] = values[2];
  values[2] = 5;  // the next block must not see it
}
TEST_F(Emulation, MemoryThatNobodyWroteIsNan) {
  float* to = device_floats(3);
  EXPECT_TRUE(std::isnan(read(to, 3)[1]));
  EXPECT_EQ(run(read_unwritten, 3, 1, to), cudaSuccess);
  for (const float v : read(to, 3)) EXPECT_TRUE(std::isnan(v));
}

__global__ void half_a_barrier() {
  if (threadIdx.x < 32) __syncthreads();
}
__global__ void two_barriers() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void half_a_warp(float* to) {
  float value = 1;
  if (threadIdx.x < 16) value = __shfl_xor_sync(0xffffffffu, value, 1);
  to[threadIdx.x] = value;
}
__global__ void outside_its_mask() {
  __syncwarp(0xffffu);
}
__global__ void two_operations(float* to) {
  if (threadIdx.x < 16)
    to[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  else
    to[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
}
TEST_F(Emulation, ThreadsThatDoNotMeetAreTold) {
  float* to = device_floats(32);
  EXPECT_EQ(run(half_a_barrier, 1, 64), cudaErrorLaunchFailure);
  EXPECT_NE(told().find("has ended"), std::string::npos) << told();
  emulation::reset();
  EXPECT_EQ(run(two_barriers, 1, 64), cudaErrorLaunchFailure);
  EXPECT_NE(told().find("another one"), std::string::npos) << told();
  emulation::reset();
  to = device_floats(32);
  EXPECT_EQ(run(half_a_warp, 1, 32, to), cudaErrorLaunchFailure);
  EXPECT_NE(told().find("lanes that never come"), std::string::npos) << told();
  emulation::reset();
  EXPECT_EQ(run(outside_its_mask, 1, 32), cudaErrorLaunchFailure);
  emulation::reset();
  to = device_floats(32);
  EXPECT_EQ(run(two_operations, 1, 32, to), cudaErrorLaunchFailure);
  EXPECT_NE(told().find("__shfl_down_sync"), std::string::npos) << told();
}

__global__ void warp_words(int* to) {
  const int i = static_cast<int>(threadIdx.x);
  int sum = i;
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  int upper = -1;
  if (i % 2 == 1) upper = __shfl_sync(0xaaaaaaaau, i, 31);
  to[i * 4] = sum;
  to[i * 4 + 1] = static_cast<int>(__ballot_sync(0xffffffffu, i % 3 == 0));
  to[i * 4 + 2] = upper;
  to[i * 4 + 3] = __shfl_down_sync(0xffffffffu, i, 2);
}
TEST_F(Emulation, WarpOperationsGiveWhatADeviceGives) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    emulation::set_seed(seed);
    float* to = device_floats(128);
    EXPECT_EQ(run(warp_words, 1, 32, reinterpret_cast<int*>(to)), cudaSuccess) << told();
    const std::vector<float> bits = read(to, 128);
    for (int i = 0; i < 32; ++i) {
      int words[4];
      std::memcpy(words, bits.data() + i * 4, sizeof words);
      EXPECT_EQ(words[0], 31 * 32 / 2);
      EXPECT_EQ(static_cast<unsigned>(words[1]), 0x49249249u);
      EXPECT_EQ(words[2], i % 2 == 1 ? 31 : -1);
      EXPECT_EQ(words[3], i < 30 ? i + 2 : i);
    }
  }
}

__global__ void count_up(int* to) {
  atomicAdd(to, 1);
  if (__syncthreads_count(threadIdx.x < 5) != 40) atomicAdd(to, 1000);
}
TEST_F(Emulation, AtomicsAndCountingBarriersCount) {
  float* to = device_floats(1);
  EXPECT_EQ(cudaMemsetAsync(to, 0, 4, stream_), cudaSuccess);
  EXPECT_EQ(run(count_up, dim3(2, 3, 2), dim3(8, 4, 2), reinterpret_cast<int*>(to)), cudaSuccess);
  const float bits = read(to, 1)[0];
  int count = 0;
  std::memcpy(&count, &bits, sizeof count);
  EXPECT_EQ(count, 12 * 64);
}

TEST_F(Emulation, LaunchesThatNoDeviceTakesAreRefused) {
  float* to = device_floats(4);
  const auto refused = [&](dim3 grid, dim3 block, float* memory) {
    const bool is = run(write_at, grid, block, memory, 0) != cudaSuccess;
    emulation::reset();
    to = device_floats(4);
    return is;
  };
  EXPECT_TRUE(refused(0, 32, to));
  EXPECT_TRUE(refused(1, 0, to));
  EXPECT_TRUE(refused(1, 1025, to));
  EXPECT_TRUE(refused(dim3(1, 65536), 32, to));
  EXPECT_TRUE(refused(1, dim3(1, 1, 65), to));
  float on_host[4];
  EXPECT_TRUE(refused(1, 1, on_host));
  EXPECT_FALSE(refused(1, 1, to));
}

struct Gathered {
  std::int64_t n = 0;
  const float* from = nullptr;
  float* to = nullptr;
};
__global__ void gather_all(Gathered g) {
  for (std::int64_t i = threadIdx.x; i < g.n; i += blockDim.x) g.to[i] = g.from[i];
}

TEST_F(Emulation, AddressesOfTheHostWithinAStructureAreTold) {
  const std::vector<float> on_host(kThreads, 1.0f);
  float *from = device_floats(kThreads), *to = device_floats(kThreads);
  EXPECT_EQ(run(gather_all, dim3(1), dim3(kThreads), Gathered{kThreads, from, to}), cudaSuccess) << told();
  EXPECT_NE(run(gather_all, dim3(1), dim3(kThreads), Gathered{kThreads, on_host.data(), to}), cudaSuccess);
  EXPECT_NE(
      told().find("planted: a structure with an address that is not of device memory, argument 0 at byte 8"),
      std::string::npos)
      << told();
}

TEST_F(Emulation, CopiesNeedPinnedMemoryAndRoomAndTheKindTheySay) {
  float* to = device_floats(4);
  float* pinned = pinned_floats(4);
  float pageable[4] = {};
  EXPECT_EQ(cudaMemcpyAsync(to, pinned, 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_NE(cudaMemcpyAsync(to, pageable, 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  emulation::reset();
  to = device_floats(4);
  pinned = pinned_floats(4);
  EXPECT_NE(cudaMemcpyAsync(to, pinned, 20, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  emulation::reset();
  to = device_floats(4);
  pinned = pinned_floats(4);
  EXPECT_NE(cudaMemcpyAsync(to, pinned, 16, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  emulation::reset();
  to = device_floats(4);
  EXPECT_NE(cudaMemsetAsync(to, 0, 16, nullptr), cudaSuccess);  // the default stream
}

// A copy that nobody waited for reads what the host wrote afterwards, at least sometimes; an event that the
// other stream waits for keeps the order.
TEST_F(Emulation, StreamsRunWhenTheyWantAndEventsOrderThem) {
  cudaStream_t other = nullptr;
  cudaEvent_t copied = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&copied, cudaEventDisableTiming);
  int too_late = 0, unordered = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emulation::reset();
    emulation::set_seed(seed);
    float* to = device_floats(1);
    float* host = pinned_floats(1);
    *host = 1;
    cudaMemcpyAsync(to, host, 4, cudaMemcpyHostToDevice, other);
    *host = 2;  // wrong: nobody waited
    cudaStreamSynchronize(other);
    too_late += read(to, 1)[0] == 2 ? 1 : 0;

    *host = 3;
    cudaMemcpyAsync(to, host, 4, cudaMemcpyHostToDevice, other);
    unordered += read(to, 1)[0] != 3 ? 1 : 0;  // on the stream that did not wait

    *host = 4;
    cudaMemcpyAsync(to, host, 4, cudaMemcpyHostToDevice, other);
    cudaEventRecord(copied, other);
    cudaStreamWaitEvent(stream_, copied);
    EXPECT_EQ(read(to, 1)[0], 4);
  }
  EXPECT_GT(too_late, 3);
  EXPECT_GT(unordered, 1);
  cudaEventDestroy(copied);
  cudaStreamDestroy(other);
}

// Times are reckoned: what a stream does takes as long as on a device about, two streams work side by side,
// and events that stand at the wrong place or on the wrong stream tell another time.
TEST_F(Emulation, EventsTellWhatTheWorkBetweenThemTakes) {
  constexpr std::size_t kBytes = 4 << 20;
  cudaStream_t other = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  float* to = device_floats(kBytes / 4);
  float* from = pinned_floats(kBytes / 4);
  cudaEvent_t begin = nullptr, end = nullptr, untimed = nullptr, never = nullptr;
  for (cudaEvent_t* event : {&begin, &end, &never}) cudaEventCreateWithFlags(event, cudaEventDefault);
  cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming);
  const auto copy = [&](cudaStream_t on) { cudaMemcpyAsync(to, from, kBytes, cudaMemcpyHostToDevice, on); };
  const auto elapsed = [&] {
    cudaStreamSynchronize(stream_);
    cudaStreamSynchronize(other);
    float milliseconds = -1;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
    return milliseconds;
  };
  const double once = 1e3 * (2e-6 + kBytes / 40e9);  // at 40 GB/s

  cudaEventRecord(begin, stream_);
  copy(stream_);
  cudaEventRecord(end, stream_);
  EXPECT_NEAR(elapsed(), once, 1e-3 * once);

  cudaEventRecord(begin, stream_);  // beside one another
  copy(stream_);
  copy(other);
  cudaEventRecord(end, stream_);
  EXPECT_NEAR(elapsed(), once, 1e-3 * once);

  cudaEventRecord(begin, stream_);  // one after the other
  copy(other);
  cudaEventRecord(untimed, other);
  cudaStreamWaitEvent(stream_, untimed);
  copy(stream_);
  cudaEventRecord(end, stream_);
  EXPECT_NEAR(elapsed(), 2 * once, 1e-3 * once);

  copy(stream_);  // wrong: begun too late
  cudaEventRecord(begin, stream_);
  cudaEventRecord(end, stream_);
  EXPECT_EQ(elapsed(), 0);
  cudaEventRecord(begin, other);  // wrong: ended on a stream that has other work
  copy(stream_);
  copy(stream_);
  copy(other);
  cudaEventRecord(end, stream_);
  EXPECT_NEAR(elapsed(), 2 * once, 1e-3 * once);

  float milliseconds = 0;
  EXPECT_NE(cudaEventElapsedTime(&milliseconds, begin, never), cudaSuccess);
  EXPECT_NE(told().find("never recorded"), std::string::npos);
  emulation::reset();
  EXPECT_NE(cudaEventElapsedTime(&milliseconds, untimed, end), cudaSuccess);
  emulation::reset();
  for (const cudaEvent_t event : {begin, end, untimed, never}) cudaEventDestroy(event);
  cudaStreamDestroy(other);
}

// Tensor cores: tiles of 16 x 16 and 16 x 8 small whole numbers, loaded as the kernels do it and multiplied.
// The result is found where the instruction set says each lane has it.
__global__ void multiply_one_tile(const std::uint16_t* a, const std::uint16_t* b_turned,
                                  const std::uint16_t* b, float* c, float* c_again) {
  const auto lane = threadIdx.x;
  EAGLET_SHARED_ARRAY(std::uint16_t, tile, 256);
  const auto load = [&](const std::uint16_t* from) {
    __syncwarp();
    for (unsigned i = lane; i < 256; i += 32) tile[i] = from[i];
    __syncwarp();
  };
  std::uint32_t left[4], right[4];
  load(a);
  eaglet::cuda::load_matrices(tile + lane % 16 * 16 + lane / 16 * 8, left);
  load(b_turned);  // 16 columns of b, one after another
  eaglet::cuda::load_matrices(tile + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8, right);
  float sums[4] = {1, 1, 1, 1};
  eaglet::cuda::multiply_tile(left, right[0], right[1], sums);
  load(b);
  eaglet::cuda::load_matrices_turned(tile + lane % 16 * 16 + lane / 16 * 8, right);
  float again[4] = {};
  eaglet::cuda::multiply_tile(left, right[2], right[3], again);
  for (unsigned part = 0; part < 4; ++part) {
    const unsigned row = lane / 4 + part / 2 * 8, column = lane % 4 * 2 + part % 2;
    c[row * 8 + column] = sums[part];
    c_again[row * 8 + column] = again[part];
  }
}

TEST_F(Emulation, TensorCoresMultiplyAsTheInstructionSetLaysThemOut) {
  const auto number = [](int row, int column, int salt) {
    return static_cast<float>((row * 7 + column * 3 + salt) % 11 - 5);
  };
  const auto upload = [&](bool turned, int salt) {
    std::uint16_t* host = reinterpret_cast<std::uint16_t*>(pinned_floats(128));
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j)
        host[i * 16 + j] = static_cast<std::uint16_t>(
            emulation::pack_bf16(turned ? number(j, i, salt) : number(i, j, salt), 0));
    float* to = device_floats(128);
    cudaMemcpyAsync(to, host, 512, cudaMemcpyHostToDevice, stream_);
    return reinterpret_cast<const std::uint16_t*>(to);
  };
  const std::uint16_t *a = upload(false, 0), *b_turned = upload(true, 4), *b = upload(false, 4);
  float *c = device_floats(128), *again = device_floats(128);
  ASSERT_EQ(run(&multiply_one_tile, {1}, {32}, a, b_turned, b, c, again), cudaSuccess) << told();
  const std::vector<float> first = read(c, 128), second = read(again, 128);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 0, of_second_half = 0;
      for (int k = 0; k < 16; ++k) {
        sum += number(i, k, 0) * number(k, j, 4);
        of_second_half += number(i, k, 0) * number(k, j + 8, 4);
      }
      EXPECT_EQ(first[static_cast<std::size_t>(i * 8 + j)], 1 + sum);
      EXPECT_EQ(second[static_cast<std::size_t>(i * 8 + j)], of_second_half);
    }
}

__global__ void copy_beside(bool wait, const float* from, float* to) {
  EAGLET_SHARED_ARRAY(float, tile, 4);
  eaglet::cuda::copy_16_async(tile, from, true);
  if (wait) eaglet::cuda::wait_for_copies();
  for (int i = 0; i < 4; ++i) to[i] = tile[i];
}
TEST_F(Emulation, ACopyBesideTheThreadMayComeLate) {
  int late = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emulation::reset();
    emulation::set_seed(seed);
    float *from = device_floats(4), *to = device_floats(4);
    cudaMemsetAsync(from, 0, 16, stream_);
    ASSERT_EQ(run(&copy_beside, {1}, {1}, true, from, to), cudaSuccess) << told();
    EXPECT_EQ(read(to, 4)[3], 0);
    ASSERT_EQ(run(&copy_beside, {1}, {1}, false, from, to), cudaSuccess) << told();
    late += std::isnan(read(to, 4)[3]) ? 1 : 0;
  }
  EXPECT_GT(late, 3);
  EXPECT_LT(late, 17);
  emulation::reset();
  float *from = device_floats(5), *to = device_floats(4);
  EXPECT_NE(run(&copy_beside, {1}, {1}, true, from + 1, to), cudaSuccess);
  EXPECT_NE(told().find("not aligned to 16 bytes"), std::string::npos) << told();
}

TEST_F(Emulation, ForgottenMemoryIsCounted) {
  device_floats(3);
  pinned_floats(3);
  EXPECT_EQ(emulation::live_allocations(), 2);
  EXPECT_EQ(emulation::reset(), 2);
  EXPECT_EQ(emulation::live_allocations(), 0);
}

using EmulationDeathTest = Emulation;
TEST_F(EmulationDeathTest, TheHostMayNotTouchDeviceMemory) {
  volatile float* to = device_floats(3);
  EXPECT_DEATH(to[0] = 1, "device memory, touched by the host");
}

}  // namespace
