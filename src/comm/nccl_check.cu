// Holds comm/nccl_calls.h to the library's own header, where one is installed.

#if defined(__CUDACC__) && __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

#include "comm/nccl_calls.h"

namespace eaglet::nccl {

static_assert(kSuccess == ncclSuccess && kUnhandledCudaError == ncclUnhandledCudaError &&
              kInvalidArgument == ncclInvalidArgument && kInvalidUsage == ncclInvalidUsage &&
              kRemoteError == ncclRemoteError && kInProgress == ncclInProgress);
static_assert(kInt8 == ncclInt8 && kFloat32 == ncclFloat32 && kFloat64 == ncclFloat64 && kSum == ncclSum);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(kTheirs.magic == Config{}.magic && NCCL_VERSION(2, 14, 0) == Config{}.version);

// Arguments in number, order and kind; enumerations are ints and structures of the same layout are the same.
template <class T>
using Plain = std::conditional_t<
    std::is_enum_v<T>, int,
    std::conditional_t<
        std::is_same_v<T, ncclUniqueId>, UniqueId,
        std::conditional_t<
            std::is_same_v<T, ncclUniqueId*>, UniqueId*,
            std::conditional_t<std::is_same_v<T, ncclConfig_t*>, Config*,
                               std::conditional_t<std::is_same_v<T, ncclResult_t*>, int*, T>>>>>;
template <class R, class... A>
auto plain(R (*)(A...)) -> Plain<R> (*)(Plain<A>...);
#define EAGLET_SAME_CALL(ours, theirs) \
  static_assert(std::is_same_v<decltype(Functions::ours), decltype(plain(&theirs))>)
EAGLET_SAME_CALL(get_version, ncclGetVersion);
EAGLET_SAME_CALL(get_unique_id, ncclGetUniqueId);
EAGLET_SAME_CALL(comm_init, ncclCommInitRankConfig);
EAGLET_SAME_CALL(comm_destroy, ncclCommDestroy);
EAGLET_SAME_CALL(comm_abort, ncclCommAbort);
EAGLET_SAME_CALL(comm_error, ncclCommGetAsyncError);
EAGLET_SAME_CALL(all_reduce, ncclAllReduce);
EAGLET_SAME_CALL(reduce_scatter, ncclReduceScatter);
EAGLET_SAME_CALL(all_gather, ncclAllGather);
EAGLET_SAME_CALL(broadcast, ncclBroadcast);
EAGLET_SAME_CALL(error_text, ncclGetErrorString);

}  // namespace eaglet::nccl
#endif
