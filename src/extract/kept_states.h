#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/compute_type.h"
#include "extract/extract.h"
#include "formats/conversations.h"
#include "store/store.h"

namespace eaglet {

/// A store that takes the states which generating computed, as extract() would have made it: the same cut,
/// without conversations that teach nothing. What a kill keeps from it, extract() adds later: an answer is
/// written before its states.
class KeptStates {
 public:
  /// The layers that `options` ask for, the last state beside them. kUsage.
  static Result<std::vector<std::int32_t>> layers_of(const ExtractOptions& options);
  /// What the states of prompts of these lengths will take, with answers of one token and of `max_tokens`,
  /// beside what is free, for people. kNoSpace when not even the former fit.
  static Result<std::string> foresee(const ExtractOptions& options,
                                     const std::vector<std::int64_t>& prompt_tokens, std::int64_t max_tokens);
  /// Of `options` the model, the store and its form, the layers and the length limit are read. The errors of
  /// StoreWriter::open; kConfig when the store's states were made otherwise.
  static Result<std::unique_ptr<KeptStates>> open(const ExtractOptions& options, ComputeType type);
  /// states: bf16 [tokens, layers_of() and the last, hidden]. kConfig when the store has another document of
  /// this id.
  Status take(const Conversation& conversation, std::vector<std::uint16_t> states);
  std::int64_t documents() const { return documents_; }
  /// Closes the store. Nothing can be taken after it.
  Status finish() { return writer_->finish(); }

 private:
  KeptStates() = default;
  std::int64_t limit_ = 0, row_elements_ = 0, documents_ = 0;
  std::string store_path_;
  std::unique_ptr<StoreWriter> writer_;
};

}  // namespace eaglet
