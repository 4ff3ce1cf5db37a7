#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace eaglet {

/// Whose files of hidden states (docs/formats/foreign-states.md).
enum class StatesLayout { kVllm, kSpeculators, kSpecForge, kModelOpt, kNemo };
/// "vllm", "speculators", "specforge", "modelopt" or "nemo"; kUsage for anything else.
Result<StatesLayout> states_layout_from_name(const std::string& name);

/// One file of states, opened. Nothing is copied: slots point into the mapped (or unpacked) file.
struct ForeignStates {
  std::string path;
  std::string conversation_id;          // in the file or its name; may be empty
  std::int64_t conversation_row = -1;   // the row its name tells (hs_7, data_7), -1: none
  std::vector<std::int32_t> input_ids;  // as stored in it
  std::vector<std::uint8_t> loss_mask;  // empty when it holds none
  std::int64_t rows = 0, width = 0;
  struct Slot {
    Dtype dtype = Dtype::kBF16;
    const std::byte* data = nullptr;  // row 0
    std::int64_t row_bytes = 0;       // from a row to the next
    std::uint64_t file_offset = 0;
  };
  std::vector<Slot> slots;
  // NeMo: the teacher's probabilities of tokens 1, 2, ... in place of the last state (nemo_states.h).
  Slot teacher;
  std::int64_t teacher_width = 0;    // 0: none
  bool first_token_unknown = false;  // input_ids[0] is not in the file
  std::vector<float> row_scales;     // [rows], of fp8 files; else empty
  bool all_places = false;           // the slots are the places 0..n, by the tensor's own name
  bool last_is_post_norm = false;    // by the layout; modelopt: by its back end, which the caller knows
  bool in_place_possible = false;    // slots lie unpacked in `path` in a type a store can refer to
  std::shared_ptr<const void> owner;

  /// One row of a slot as fp32, `width` numbers.
  void row_f32(std::size_t slot, std::int64_t row, float* to) const;
};

/// The files of states below `directory`, sorted by name. kNotFound when there is none.
Result<std::vector<std::string>> list_foreign_states(StatesLayout layout, const std::string& directory);
/// kDataLoss: empty, cut, damaged, or shapes that do not fit together (rows and ids apart may differ: that is
/// for check_foreign). kConfig: things in it that are not data.
Result<ForeignStates> open_foreign_states(StatesLayout layout, const std::string& path);

}  // namespace eaglet
