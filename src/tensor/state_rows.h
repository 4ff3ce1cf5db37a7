#pragma once

#include <cstdint>

#include "base/status.h"

namespace eaglet {

/// What numbers of states lie in a store, or in a batch, as. bf16 also where they are packed without loss.
enum class StateForm : std::uint8_t { kF32, kBF16, kFp8 };
inline std::int64_t bytes_of_number(StateForm form) {
  return form == StateForm::kF32 ? 4 : form == StateForm::kBF16 ? 2 : 1;
}

/// Where the stored form of rows goes: numbers [n, width], and of fp8 a scale for each row and layer.
struct StoredRowsTo {
  void* numbers = nullptr;
  float* scales = nullptr;     // [layers, scales_ld]; of fp8 only
  std::int64_t scales_ld = 0;  // at least n
};

/// States of a batch that are read when a chunk of its rows needs them: batches too long to be held in
/// memory, and those whose states stay as they are stored until a device widens them.
class StateRows {
 public:
  virtual ~StateRows() = default;
  /// Batch rows [first, first + n), all of one document: to [n, captured layers * width] or [n, width], fp32.
  virtual Status read_aux(std::int64_t first, std::int64_t n, float* to) = 0;
  virtual Status read_last(std::int64_t first, std::int64_t n, float* to) = 0;
  /// What read_stored() gives; kF32: it has nothing to give.
  virtual StateForm form() const { return StateForm::kF32; }
  /// The same rows as they are stored; widened by ops/stored_states.h they are what read_aux() and
  /// read_last() give, bit for bit.
  virtual Status read_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) {
    static_cast<void>(captured), static_cast<void>(first), static_cast<void>(n), static_cast<void>(to);
    return Status(StatusCode::kInternal, "these states have no stored form");
  }
};

}  // namespace eaglet
