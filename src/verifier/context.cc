#include "verifier/context.h"

#include <exception>
#include <string>

#include "verifier/llama_log.h"

namespace eaglet {

std::int32_t TokenBatch::add(std::int32_t token, std::int32_t position, std::int32_t sequence, bool output) {
  const std::int32_t row = batch_.n_tokens++;
  batch_.token[row] = token;
  batch_.pos[row] = position;
  batch_.n_seq_id[row] = 1;
  batch_.seq_id[row][0] = sequence;
  batch_.logits[row] = output ? 1 : 0;
  return row;
}

Result<ContextPointer> make_context(llama_model* model, const llama_context_params& params,
                                    const std::string& path) {
  std::string reason;
  try {
    ContextPointer context(llama_init_from_model(model, params));
    if (context != nullptr) return context;
    reason = take_llama_error();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return Status(StatusCode::kNoSpace, "llama.cpp cannot set up the model: " + reason, path,
                "use fewer sequences at a time (--parallel) or shorter ones (--max-tokens, --max-seq-len)");
}

Status decode(llama_context* context, const TokenBatch& batch, const std::string& path) {
  std::string reason;
  try {
    const std::int32_t code = llama_decode(context, batch.get());
    if (code == 0) return Status();
    reason = "llama_decode says " + std::to_string(code);
    if (const std::string said = take_llama_error(); !said.empty()) reason += ", " + said;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return Status(StatusCode::kInternal, "the target model failed on a batch: " + reason, path,
                "run again: what was finished is kept; if it fails again, report it with the model's name");
}

}  // namespace eaglet
