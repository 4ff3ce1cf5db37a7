#include <fmt/format.h>

#include "base/interrupt.h"
#include "formats/safetensors.h"
#include "inspect/inspectors.h"
#include "inspect/number_check.h"

namespace eaglet {
namespace {

Json tensor_table(const SafetensorsFile& file) {
  Json table = Json::array();
  for (const SafetensorsEntry& entry : file.entries())
    table.push_back({{"name", entry.name},
                     {"dtype", std::string(dtype_name(entry.dtype))},
                     {"shape", entry.shape},
                     {"bytes", entry.bytes}});
  return table;
}

/// Slots [tokens, slots, width] that nobody wrote: all zeros for every token.
void find_empty_slots(const SafetensorsFile& file, const SafetensorsEntry& states, Inspection* inspection) {
  const std::int64_t tokens = states.shape[0], slots = states.shape[1], width = states.shape[2];
  const auto element = static_cast<std::int64_t>(dtype_bytes(states.dtype));
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    bool all_zero = tokens > 0 && width > 0;
    for (std::int64_t token = 0; token < tokens && all_zero; ++token)
      all_zero =
          check_numbers(states.dtype, file.data(states) + (token * slots + slot) * width * element, width)
              .all_zero;
    if (all_zero)
      inspection->doubts.push_back(
          fmt::format("hidden_states slot {} is zero for every token: nobody wrote it", slot));
  }
}

/// A file of hidden states as vLLM's connector writes it: one row of states per token id.
void check_states(const SafetensorsFile& file, bool verify, Inspection* inspection) {
  const SafetensorsEntry* states = file.find("hidden_states");
  const SafetensorsEntry* ids = file.find("token_ids");
  if (states == nullptr || ids == nullptr) return;
  inspection->facts["holds"] = "hidden states of one document";
  if (ids->shape.size() != 1 || states->shape.size() != 3) {
    inspection->problems.push_back(
        fmt::format("hidden_states {} and token_ids {} should be [tokens, slots, width] and [tokens]",
                    shape_text(states->shape), shape_text(ids->shape)));
    return;
  }
  if (ids->shape[0] != states->shape[0])
    inspection->problems.push_back(
        fmt::format("{} token ids but {} rows of hidden states: was the server's prefix cache on?",
                    ids->shape[0], states->shape[0]));
  if (verify) find_empty_slots(file, *states, inspection);
}

}  // namespace

Result<Inspection> inspect_safetensors(const InspectOptions& options, Progress& progress) {
  Inspection inspection = begin_inspection("safetensors", options.path);
  EAGLET_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(options.path));
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(options.path));
  std::int64_t elements = 0;
  for (const SafetensorsEntry& entry : file.entries()) elements += entry.elements();
  inspection.facts["bytes"] = bytes;
  inspection.facts["numbers"] = elements;
  if (!file.metadata().empty()) inspection.facts["metadata"] = file.metadata();
  check_states(file, options.verify, &inspection);
  inspection.facts["tensors"] = tensor_table(file);
  if (!options.verify) return inspection;
  progress.begin("verify", static_cast<std::uint64_t>(elements), "numbers");
  std::uint64_t done = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (interrupted())
      return Status(StatusCode::kInterrupted, "stopped by a signal before every number was checked",
                    options.path);
    const NumberFacts numbers = check_numbers(entry.dtype, file.data(entry), entry.elements());
    if (numbers.first_not_finite)
      inspection.problems.push_back(fmt::format("tensor {} holds {} at {}", entry.name,
                                                numbers.first_is_nan ? "NaN" : "infinity",
                                                place_in(entry.shape, *numbers.first_not_finite)));
    progress.update(done += static_cast<std::uint64_t>(entry.elements()));
  }
  progress.end(fmt::format("{} numbers checked", elements));
  return inspection;
}

}  // namespace eaglet
