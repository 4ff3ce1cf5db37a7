#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"

// Only for the .cc files of this room: what generating and taking states both do with libllama.
namespace eaglet {

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
using ContextPointer = std::unique_ptr<llama_context, FreeContext>;

/// A llama_batch with room for `capacity` tokens of one sequence each.
class TokenBatch {
 public:
  explicit TokenBatch(std::int32_t capacity)
      : batch_(llama_batch_init(capacity, 0, 1)), capacity_(capacity) {}
  ~TokenBatch() { llama_batch_free(batch_); }
  TokenBatch(const TokenBatch&) = delete;
  TokenBatch& operator=(const TokenBatch&) = delete;
  void clear() { batch_.n_tokens = 0; }
  std::int32_t size() const { return batch_.n_tokens; }
  std::int32_t room() const { return capacity_ - batch_.n_tokens; }
  /// Returns the token's row in the batch.
  std::int32_t add(std::int32_t token, std::int32_t position, std::int32_t sequence, bool output);
  const llama_batch& get() const { return batch_; }

 private:
  llama_batch batch_;
  std::int32_t capacity_;
};

/// llama_init_from_model with its failures as Status (kNoSpace).
Result<ContextPointer> make_context(llama_model* model, const llama_context_params& params,
                                    const std::string& path);
/// llama_decode with its failures as Status.
Status decode(llama_context* context, const TokenBatch& batch, const std::string& path);

}  // namespace eaglet
