#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/torch_file.h"

namespace eaglet {

/// Where a storage of a torch file lies.
struct TorchStorage {
  const std::byte* data = nullptr;
  std::uint64_t file_offset = 0, bytes = 0;
};
using FindStorage = std::function<Result<TorchStorage>(const std::string& key)>;

/// Runs the few opcodes of a pickle that build data, protocols 2 to 5. Classes are never looked up: a fixed
/// list of names (torch's tensor and storage names, OrderedDict, Counter) is understood, every other name is
/// an error that tells it. Nodes go to `nodes`; the result points into it.
Result<const TorchValue*> run_torch_pickle(std::string_view pickle, const FindStorage& find_storage,
                                           std::deque<TorchValue>* nodes);

}  // namespace eaglet
