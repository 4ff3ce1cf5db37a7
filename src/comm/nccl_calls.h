#pragma once

#include <cstddef>

#include "base/status.h"

struct CUstream_st;  // of the CUDA runtime and of NCCL
struct ncclComm;

// The part of NCCL that we use, declared here so that the library is found at run time and neither its header
// nor itself is needed to build. nccl_check.cu holds these to the library's own header where there is one.
namespace eaglet::nccl {

using Stream = ::CUstream_st*;
using Communicator = ::ncclComm*;

struct UniqueId {
  char internal[128];
};

inline constexpr int kSuccess = 0, kUnhandledCudaError = 1, kInvalidArgument = 4, kInvalidUsage = 5,
                     kRemoteError = 6, kInProgress = 7;
inline constexpr int kInt8 = 0, kFloat32 = 7, kFloat64 = 8;  // ncclDataType_t
inline constexpr int kSum = 0;                               // ncclRedOp_t

/// ncclConfig_t as it was in 2.14, which newer libraries take: they read no further than `size` says.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;  // calls answer kInProgress instead of waiting for other ranks
};

struct Functions {
  int (*get_version)(int* version);
  int (*get_unique_id)(UniqueId* id);
  int (*comm_init)(Communicator* comm, int ranks, UniqueId id, int rank, Config* config);
  int (*comm_destroy)(Communicator comm);
  int (*comm_abort)(Communicator comm);
  int (*comm_error)(Communicator comm, int* error);
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, Communicator comm,
                    Stream stream);
  int (*reduce_scatter)(const void* from, void* to, std::size_t count_each, int type, int op,
                        Communicator comm, Stream stream);
  int (*all_gather)(const void* from, void* to, std::size_t count_each, int type, Communicator comm,
                    Stream stream);
  int (*broadcast)(const void* from, void* to, std::size_t count, int type, int root, Communicator comm,
                   Stream stream);
  const char* (*error_text)(int result);
};

/// Finds the library, once. kNotFound when it is not on this machine, or too old.
Result<const Functions*> load();

}  // namespace eaglet::nccl
