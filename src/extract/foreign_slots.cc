#include "extract/foreign_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/files.h"
#include "extract/nemo_states.h"
#include "formats/json.h"
#include "formats/layer_ids.h"

namespace eaglet {
namespace {

/// layer_ids of the data_config.json that speculators 0.3 and 0.4 wrote beside their files; empty without
/// one.
std::vector<std::int32_t> ids_of_data_config(const std::string& directory) {
  const auto json = read_json_file(directory + "/data_config.json");
  if (!json.ok() || !json->is_object()) return {};
  const auto states = json->find("hidden_states");
  if (states == json->end() || !states->is_object() || !states->contains("layer_ids")) return {};
  std::vector<std::int32_t> ids;
  for (const Json& id : (*states)["layer_ids"]) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > 100000) return {};
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

struct Usual {
  std::vector<std::int32_t> places;
  std::string from;
};

/// What each tool captures when nobody says anything (docs/formats/foreign-states.md).
Result<Usual> usual_places(const TakeInOptions& options, StatesLayout layout, const ForeignStates& first,
                           std::int64_t num_layers) {
  const auto n = static_cast<std::int32_t>(num_layers);
  if (first.all_places) {
    Usual all{std::vector<std::int32_t>(static_cast<std::size_t>(n) + 1), "the file holds every place"};
    std::iota(all.places.begin(), all.places.end(), 0);
    return all;
  }
  switch (layout) {
    case StatesLayout::kNemo: {
      EAGLET_ASSIGN_OR_RETURN(const NemoManifest manifest, read_nemo_manifest(options.states_path));
      if (manifest.output_layers.empty())
        return Usual{{2, n / 2, n - 3, n}, "NeMo captures the outputs of layers 1, L/2-1 and L-4"};
      EAGLET_ASSIGN_OR_RETURN(auto places,
                              layer_places(manifest.output_layers, LayerConvention::kOutput, num_layers));
      places.push_back(n);
      return Usual{places, "manifest.json lists outputs of layers"};
    }
    case StatesLayout::kVllm:
      return Usual{{2, n / 2, n - 3, n},
                   "vLLM's launch script captures 2, L/2, L-3 and L (inputs of layers)"};
    case StatesLayout::kSpeculators: {
      if (!first.path.ends_with(".pt"))
        return Usual{{2, n / 2, n - 3, n}, "speculators captures 2, L/2, L-3 and L (inputs of layers)"};
      const std::vector<std::int32_t> listed = ids_of_data_config(options.states_path);
      if (!listed.empty()) {
        EAGLET_ASSIGN_OR_RETURN(auto places, layer_places(listed, LayerConvention::kOutput, num_layers));
        return Usual{places, "data_config.json lists outputs of layers"};
      }
      return Usual{{3, n / 2 + 1, n - 2, n},
                   "speculators before 0.5 captured the outputs of layers 2, L/2, L-3 and L-1"};
    }
    case StatesLayout::kSpecForge:
      return Usual{{2, n / 2, n - 3, n}, "SpecForge captures the outputs of layers 1, L/2-1 and L-4"};
    case StatesLayout::kModelOpt:
      if (options.backend == "hf")
        return Usual{{2, n / 2, n - 3, n},
                     "Model-Optimizer's HF back end captures the outputs of 1, L/2-1, L-4"};
      return Usual{{1, n / 2 - 1, n - 4, n},
                   "Model-Optimizer's vLLM back end captures the inputs of 1, L/2-1, L-4"};
  }
  return Status(StatusCode::kInternal, "no such layout");
}

Status check_backend(const TakeInOptions& options, StatesLayout layout) {
  if (layout != StatesLayout::kModelOpt) return {};
  if (options.backend == "hf" || options.backend == "vllm") return {};
  return Status(StatusCode::kUsage, "Model-Optimizer's files do not say which of its back ends made them",
                "--backend",
                "hf: last state after the final norm, layer outputs; vllm: before it, one layer earlier");
}

}  // namespace

Result<SlotChoice> choose_slots(const TakeInOptions& options, StatesLayout layout, const ForeignStates& first,
                                const TargetFacts& facts) {
  EAGLET_RETURN_IF_ERROR(check_backend(options, layout));
  EAGLET_ASSIGN_OR_RETURN(const LayerConvention convention,
                          layer_convention_from_name(options.layer_convention));
  SlotChoice choice;
  choice.divide_by_norm =
      first.last_is_post_norm || (layout == StatesLayout::kModelOpt && options.backend == "hf");
  if (!options.captured_layer_ids.empty()) {
    EAGLET_ASSIGN_OR_RETURN(choice.slot_places,
                            layer_places(options.captured_layer_ids, convention, facts.num_layers));
  } else {
    EAGLET_ASSIGN_OR_RETURN(Usual usual, usual_places(options, layout, first, facts.num_layers));
    if (Status status = check_layer_ids(usual.places, 0, facts.num_layers); !status.ok())
      return Status(
          StatusCode::kUsage,
          fmt::format("a target of {} layers is too shallow for the usual captured layers", facts.num_layers),
          "--captured-layer-ids", "say what the slots hold");
    choice.slot_places = std::move(usual.places);
    choice.notes.push_back("assumed, as --captured-layer-ids is not given: " + usual.from);
  }
  if (choice.slot_places.size() != first.slots.size())
    return Status(StatusCode::kConfig,
                  fmt::format("the files hold {} slots, but {} layers are named", first.slots.size(),
                              choice.slot_places.size()),
                  first.path, "say with --captured-layer-ids what each slot holds, the last state with it");
  const auto& places = choice.slot_places;
  const auto n = static_cast<std::int32_t>(facts.num_layers);
  const auto slot_of = [&](std::int32_t place) {
    return static_cast<std::size_t>(std::find(places.begin(), places.end(), place) - places.begin());
  };
  choice.last_slot = slot_of(n);
  if (choice.last_slot == places.size())
    return Status(StatusCode::kConfig,
                  fmt::format("the last state (place {}, after all layers) is not among the slots [{}]", n,
                              fmt::join(places, ", ")),
                  first.path, "the teacher is made of it: capture it too");
  if (options.target_layer_ids.empty()) {
    if (first.all_places) {
      EAGLET_ASSIGN_OR_RETURN(choice.aux_places, usual_layer_ids(facts.num_layers));
      choice.notes.push_back("kept, as --target-layer-ids is not given: " +
                             describe_layer_ids(choice.aux_places, facts.num_layers));
    } else {
      std::copy_if(places.begin(), places.end(), std::back_inserter(choice.aux_places),
                   [&](std::int32_t place) { return place != n; });
    }
  } else {
    EAGLET_ASSIGN_OR_RETURN(choice.aux_places,
                            layer_places(options.target_layer_ids, convention, facts.num_layers));
  }
  for (const std::int32_t place : choice.aux_places) {
    choice.aux_slots.push_back(slot_of(place));
    if (choice.aux_slots.back() == places.size())
      return Status(
          StatusCode::kUsage,
          fmt::format("place {} was not captured: the slots hold [{}]", place, fmt::join(places, ", ")),
          "--target-layer-ids", "keep some of those");
  }
  if (choice.aux_places.empty())
    return Status(StatusCode::kConfig, "the slots hold no captured layer beside the last state", first.path,
                  "capture the layers that the draft reads");
  return choice;
}

std::string describe_slots(const SlotChoice& slots, std::int64_t num_layers) {
  return fmt::format(
      "slots hold: {}; kept: {} and the last state{}", describe_layer_ids(slots.slot_places, num_layers),
      fmt::join(slots.aux_places, ", "),
      slots.divide_by_norm ? ", which is after the final norm: its scale is taken out again" : "");
}

std::vector<std::uint16_t> gather_states(const ForeignStates& states, const SlotChoice& slots,
                                         const std::vector<float>& final_norm, std::int64_t tokens) {
  std::vector<std::size_t> order = slots.aux_slots;
  order.push_back(slots.last_slot);
  const auto width = static_cast<std::size_t>(states.width);
  std::vector<std::uint16_t> out(static_cast<std::size_t>(tokens) * order.size() * width);
  std::vector<float> row(width);
  std::uint16_t* to = out.data();
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::size_t i = 0; i < order.size(); ++i, to += width) {
      const ForeignStates::Slot& slot = states.slots[order[i]];
      const bool last = i + 1 == order.size();
      if (slot.dtype == Dtype::kBF16 && !(last && slots.divide_by_norm)) {
        std::memcpy(to, slot.data + token * slot.row_bytes, width * sizeof(std::uint16_t));
        continue;
      }
      states.row_f32(order[i], token, row.data());
      if (last && slots.divide_by_norm)
        for (std::size_t c = 0; c < width; ++c) row[c] /= final_norm[c];
      for (std::size_t c = 0; c < width; ++c) to[c] = f32_to_bf16(row[c]);
    }
  }
  return out;
}

StateReference refer_to(const ForeignStates& states, const SlotChoice& slots) {
  StateReference reference;
  std::error_code ignored;
  reference.path = std::filesystem::absolute(states.path, ignored).lexically_normal().string();
  const auto bytes = file_bytes(states.path);
  reference.file_bytes = bytes.ok() ? *bytes : 0;
  std::vector<std::size_t> order = slots.aux_slots;
  order.push_back(slots.last_slot);
  for (const std::size_t i : order)
    reference.slots.push_back({states.slots[i].dtype, states.slots[i].file_offset,
                               static_cast<std::uint64_t>(states.slots[i].row_bytes)});
  return reference;
}

}  // namespace eaglet
