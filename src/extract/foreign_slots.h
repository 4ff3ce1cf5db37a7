#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "extract/take_in.h"
#include "formats/target_model.h"

namespace eaglet {

/// Which slots of foreign files become which captured layers.
struct SlotChoice {
  std::vector<std::int32_t> slot_places;  // what each slot holds: place b = after b layers
  std::vector<std::int32_t> aux_places;   // kept, rising
  std::vector<std::size_t> aux_slots;     // where they lie
  std::size_t last_slot = 0;
  bool divide_by_norm = false;     // the last state is after the final norm: its scale is taken out again
  std::vector<std::string> notes;  // what was assumed
};

/// From what the user said, else from the layout's usual numbers, which are then noted as assumed. kUsage /
/// kConfig: numbers that do not fit the slots, a last state that is not among them.
Result<SlotChoice> choose_slots(const TakeInOptions& options, StatesLayout layout, const ForeignStates& first,
                                const TargetFacts& facts);
/// "slots hold: 2 = after 2 of 8 layers, ...; kept: 2, 4, 5 and the last state".
std::string describe_slots(const SlotChoice& slots, std::int64_t num_layers);

/// bf16 [tokens, aux + 1, width]. With divide_by_norm the last state y * g / rms(y) becomes y / rms(y): norm
/// and head make the same logits of it.
std::vector<std::uint16_t> gather_states(const ForeignStates& states, const SlotChoice& slots,
                                         const std::vector<float>& final_norm, std::int64_t tokens);
/// Where the same numbers lie in the file itself.
StateReference refer_to(const ForeignStates& states, const SlotChoice& slots);

}  // namespace eaglet
