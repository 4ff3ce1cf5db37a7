#pragma once

// The threads of one block as fibers: what a kernel asks of the machine it runs on.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace emulation {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

/// One launch: how many blocks of how many threads, and bytes of dynamic shared memory.
struct LaunchShape {
  Index3 grid, block;
  std::size_t shared_bytes = 0;
};

/// Runs every thread of every block, blocks one after another in an order drawn by the seed, the threads of a
/// block turn about in one of three ways drawn by the seed: any ready thread, warps in a fixed order of
/// preference, or threads in one. A thread goes on until it meets a barrier or a warp operation. `name` is
/// told in faults. False when a fault ended it.
bool run_kernel(const std::string& name, const LaunchShape& shape, const std::function<void()>& thread);
/// Is a kernel running now?
bool in_kernel();
/// "rms_norm_rows, block (3,0,0), thread (17,0,0)"
std::string where_in_kernel();

/// Ends the running launch; from within a kernel it does not return.
void end_launch();

// From within a kernel.
/// Where the thread that runs now stands: kept up to date at every change of threads.
struct Position {
  Index3 thread, block, block_size, grid_size;
};
Position& position();

/// __syncthreads(); all threads of a block have to meet at the same line.
void block_barrier(int line);
/// The same, and in how many threads `predicate` held.
int block_barrier_count(int line, bool predicate);

/// A warp operation: waits until all lanes of `mask` have called with the same `what`, then tells what each
/// lane brought; lanes outside the mask bring garbage.
constexpr int kLanes = 32;
/// `last` is run once, by the lane that comes last, before any lane goes on.
const std::uint64_t* warp_exchange(unsigned mask, const char* what, std::uint64_t mine,
                                   void (*last)(const std::uint64_t* all) = nullptr);
int lane();

/// Copies that the device does beside the thread: do they come as late as they may in this block? Then they
/// wait in line until run_pending_copies() of the same thread.
bool copies_come_late();
void add_pending_copy(std::function<void()> copy);
void run_pending_copies();

/// Shared memory of the block: one array for each place in the source that asks. Fresh memory is NaN; beyond
/// the end lies a page that faults.
void* shared_array(const char* file, int line, std::size_t bytes);
void* dynamic_shared();

}  // namespace emulation
