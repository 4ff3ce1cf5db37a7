#include "apps/rank_place.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "apps/cuda_backend.h"
#include "apps/open_device.h"
#include "base/files.h"
#include "base/hash.h"
#include "comm/device_ranks.h"

namespace eaglet::apps {
namespace {

// Programs that differ in a byte may differ in the last bit of a sum.
std::string this_program() {
  const Result<std::string> bytes = read_file("/proc/self/exe");
  return "program " + (bytes.ok() ? hex64(xxh64(*bytes)) : std::string("of unknown bytes"));
}

Status check_same_device_flag(const std::string& device, Comm& comm) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> all, gather_texts(comm, device));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return Status(
          StatusCode::kConfig,
          fmt::format("rank {} was started with --device {}, rank 0 with {}", rank, all[rank], all[0]),
          "--device", "start all ranks with the same command");
  return {};
}

// The number of this rank's device here, if the machine has as many. A launcher may show each rank its own
// only.
int device_of_rank(const Comm& comm) {
  return usable_cuda_devices() == 1 ? 0 : comm.rank_here();
}

// Do the ranks compute on devices? All or none.
Result<bool> on_devices(const std::string& name, Comm& comm) {
  if (name != "auto") return name != "cpu";
  const bool has_one = device_of_rank(comm) < usable_cuda_devices();
  double with_device = has_one ? 1 : 0;
  EAGLET_RETURN_IF_ERROR(comm.sum(1, &with_device));
  const int count = static_cast<int>(with_device);
  if (count == 0 || count == comm.ranks()) return count > 0;
  return Status(StatusCode::kConfig,
                fmt::format("{} of {} ranks have a CUDA device of their own, the others have none", count,
                            comm.ranks()),
                "--device", "start as many ranks as there are devices on each machine, or give --device cpu");
}

Result<int> choose_device(const std::string& name, const Comm& comm) {
  const int number = device_of_rank(comm), usable = usable_cuda_devices();
  if (name != "auto" && name != "cuda")
    return Status(
        StatusCode::kUsage, "several ranks cannot compute on '" + name + "'", "--device",
        "give cpu, auto or cuda, which takes one a rank; CUDA_VISIBLE_DEVICES says which there are");
  if (usable > 0 && number >= usable)
    return Status(StatusCode::kConfig,
                  fmt::format("rank {} has no device: its machine has {} CUDA devices for {} ranks",
                              comm.rank(), usable, comm.ranks_here()),
                  "--device", fmt::format("start {} ranks on that machine", usable));
  return number;
}

// Two ranks that share a device would wait for each other for ever.
Status check_own_device(int number, Comm& comm) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                          gather_texts(comm, cuda_backend_device_id(number)));
  for (std::size_t a = 0; a < ids.size(); ++a)
    for (std::size_t b = a + 1; b < ids.size(); ++b)
      if (!ids[a].empty() && ids[a] == ids[b])
        return Status(StatusCode::kConfig, fmt::format("ranks {} and {} have the same CUDA device", a, b),
                      "--device",
                      "start one rank a device, and let each see its own or all (CUDA_VISIBLE_DEVICES)");
  return {};
}

Status open_together(const std::string& name, double timeout_seconds, RankPlace* place) {
  EAGLET_RETURN_IF_ERROR(check_same_device_flag(name, *place->comm));
  EAGLET_ASSIGN_OR_RETURN(const bool devices, on_devices(name, *place->comm));
  if (!devices) return {};
  EAGLET_ASSIGN_OR_RETURN(const int number, choose_device(name, *place->comm));
  EAGLET_ASSIGN_OR_RETURN(place->device, open_cuda_backend(number));
  EAGLET_RETURN_IF_ERROR(check_own_device(number, *place->comm));
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<DeviceRanks> together,
                          open_cuda_ranks(*place->comm, {timeout_seconds}));
  place->comm = with_device_ranks(std::move(place->comm), std::move(together));
  return {};
}

}  // namespace

Result<RankPlace> open_rank_place(const std::string& device, double timeout_seconds, Progress& progress) {
  RankPlace place;
  EAGLET_ASSIGN_OR_RETURN(place.comm, start_ranks({timeout_seconds, this_program}));
  if (place.comm->ranks() == 1) {
    EAGLET_ASSIGN_OR_RETURN(place.device, open_device(device, progress));
    return place;
  }
  if (const Status opened = open_together(device, timeout_seconds, &place); !opened.ok()) {
    place.comm->leave(opened);
    return opened;
  }
  return place;
}

}  // namespace eaglet::apps
