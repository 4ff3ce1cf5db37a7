#pragma once

// What tests ask of the emulated device, and what its parts share. Kernels see cuda_runtime.h only.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulation {

/// The order of threads, blocks and streams follows from it.
void set_seed(std::uint64_t seed);
std::uint64_t seed();

/// What went wrong on the device since the last reset(), in words; empty when nothing did. After a fault
/// every call answers with an error, as on a device.
const std::vector<std::string>& faults();
/// Forgets faults, waiting work and memory that was not given back. Returns the number of forgotten
/// allocations.
int reset();
/// Allocations that were not given back.
int live_allocations();

/// What the work of a name has taken on the device so far: a kernel's name, "copy in", "product", ...; of all
/// when the name is empty. As reckoned, see Operation in runtime.cc.
double busy_seconds(const std::string& name = {});

/// Handles, descriptors and layouts of cuBLASLt that were not destroyed.
int live_library_objects();
/// Communicators of NCCL that were neither destroyed nor aborted.
int live_communicators();

/// For the parts of the emulation: does all of it lie in live device memory?
bool lies_in_device(const void* from, std::size_t bytes);
/// Notes a fault. From within a kernel it also ends the launch.
void fault(const std::string& what);

}  // namespace emulation
