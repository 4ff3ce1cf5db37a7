#include <dlfcn.h>

#include <string>

#include "comm/nccl_calls.h"

namespace eaglet::nccl {
namespace {

constexpr int kOldest = 21400;  // the first whose calls need not wait for other ranks

template <class Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, Functions* f) {
  return find(library, "ncclGetVersion", &f->get_version) &&
         find(library, "ncclGetUniqueId", &f->get_unique_id) &&
         find(library, "ncclCommInitRankConfig", &f->comm_init) &&
         find(library, "ncclCommDestroy", &f->comm_destroy) &&
         find(library, "ncclCommAbort", &f->comm_abort) &&
         find(library, "ncclCommGetAsyncError", &f->comm_error) &&
         find(library, "ncclAllReduce", &f->all_reduce) &&
         find(library, "ncclReduceScatter", &f->reduce_scatter) &&
         find(library, "ncclAllGather", &f->all_gather) && find(library, "ncclBroadcast", &f->broadcast) &&
         find(library, "ncclGetErrorString", &f->error_text);
}

}  // namespace

Result<const Functions*> load() {
  static Functions functions;
  static void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  static const bool whole = library != nullptr && find_all(library, &functions);
  int version = 0;
  if (whole && functions.get_version(&version) == kSuccess && version >= kOldest) return &functions;
  return Status(
      StatusCode::kNotFound,
      library == nullptr ? "NCCL (libnccl.so.2) is not on this machine"
                         : "NCCL is older than 2.14: version " + std::to_string(version),
      "",
      "install it (package libnccl2 of NVIDIA, or nvidia-nccl-cu13 of the Python index) and name its folder "
      "in LD_LIBRARY_PATH");
}

}  // namespace eaglet::nccl
