#include "verifier/target.h"

#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "verifier/llama_log.h"
#include "verifier/widened_copy.h"

namespace eaglet {
namespace {

void start_llama_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    quiet_llama_log();
    llama_backend_init();
  });
}

bool has_accelerator() {
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i)
    if (ggml_backend_dev_type(ggml_backend_dev_get(i)) == GGML_BACKEND_DEVICE_TYPE_GPU) return true;
  return false;
}

/// 0: load the file itself.
Result<int> bits_to_widen_to(const std::string& path, TargetWeightsAs wanted) {
  if (wanted == TargetWeightsAs::kStored) return 0;
  const int bits = wanted == TargetWeightsAs::kF32 ? 32 : 16;
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, widened_bytes(path, bits));
  if (bytes == 0) return 0;
  if (wanted != TargetWeightsAs::kAuto) return bits;
  const bool fits = bytes * 2 < available_memory_bytes();
  return fits && !has_accelerator() ? bits : 0;
}

}  // namespace

Result<TargetWeightsAs> weights_as_from_name(const std::string& name) {
  if (name == "auto") return TargetWeightsAs::kAuto;
  if (name == "stored") return TargetWeightsAs::kStored;
  if (name == "f16") return TargetWeightsAs::kF16;
  if (name == "f32") return TargetWeightsAs::kF32;
  return Status(StatusCode::kUsage, "--weights \"" + name + "\" is not known", "",
                "give auto, stored, f16 or f32");
}

Target::~Target() {
  if (model_ != nullptr) llama_model_free(model_);
}

Result<std::unique_ptr<Target>> Target::load(const std::string& path, const TargetOptions& options) {
  std::unique_ptr<Target> target(new Target());
  EAGLET_ASSIGN_OR_RETURN(target->facts_, read_target_facts(path));
  start_llama_once();
  target->threads_ = options.threads > 0
                         ? options.threads
                         : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  int bits = 0;
  if (!options.vocab_only) {
    EAGLET_ASSIGN_OR_RETURN(bits, bits_to_widen_to(path, options.weights));
  }
  std::optional<WidenedCopy> copy;
  if (bits != 0) {
    EAGLET_ASSIGN_OR_RETURN(WidenedCopy made, WidenedCopy::make(path, bits, target->threads_));
    copy.emplace(std::move(made));
  }
  target->weights_as_ = bits == 0 ? "as stored" : bits == 16 ? "f16" : "f32";
  std::string reason;
  try {
    llama_model_params params = llama_model_default_params();
    params.vocab_only = options.vocab_only;
    target->model_ = llama_model_load_from_file(copy ? copy->path().c_str() : path.c_str(), params);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (target->model_ == nullptr) {
    if (reason.empty()) reason = take_llama_error();
    return Status(StatusCode::kConfig, "llama.cpp cannot load the model: " + reason, path,
                  "check that the file is complete, and that llama.cpp knows its architecture");
  }
  target->vocab_ = llama_model_get_vocab(target->model_);
  return target;
}

Result<std::vector<std::int32_t>> Target::tokenize(const std::string& text, bool add_bos) const {
  try {
    const auto length = static_cast<std::int32_t>(text.size());
    std::vector<std::int32_t> tokens(text.size() + 8);
    std::int32_t count =
        llama_tokenize(vocab_, text.data(), length, tokens.data(), static_cast<std::int32_t>(tokens.size()),
                       add_bos, /*parse_special=*/true);
    if (count < 0) {  // the buffer was too small by design of the call: -count is what is needed
      tokens.resize(static_cast<std::size_t>(-static_cast<std::int64_t>(count)));
      count = llama_tokenize(vocab_, text.data(), length, tokens.data(),
                             static_cast<std::int32_t>(tokens.size()), add_bos, true);
    }
    if (count < 0) return Status(StatusCode::kInternal, "the tokeniser gave no answer", facts_.path);
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
  } catch (const std::exception& error) {
    return Status(StatusCode::kInvalidArgument, std::string("cannot tokenise the text: ") + error.what(),
                  facts_.path, "check that the text is valid UTF-8");
  }
}

std::string Target::piece(std::int32_t token, bool special) const {
  if (token < 0 || token >= llama_vocab_n_tokens(vocab_)) return {};
  std::string text(64, '\0');
  std::int32_t count =
      llama_token_to_piece(vocab_, token, text.data(), static_cast<std::int32_t>(text.size()), 0, special);
  if (count < 0) {
    text.resize(static_cast<std::size_t>(-count));
    count =
        llama_token_to_piece(vocab_, token, text.data(), static_cast<std::int32_t>(text.size()), 0, special);
  }
  text.resize(static_cast<std::size_t>(std::max(count, 0)));
  return text;
}

Result<std::vector<std::int32_t>> Target::prompt_ids(const std::string& text) const {
  return tokenize(text, adds_bos());
}
Result<std::vector<std::int32_t>> Target::answer_ids(const std::string& text) const {
  return tokenize(text, /*add_bos=*/false);
}
Result<std::vector<std::int32_t>> Target::plain_ids(const std::string& text) const {
  return tokenize(text, /*add_bos=*/false);
}
SpecialFrame Target::frame() const {
  SpecialFrame frame;
  if (adds_bos()) frame.before = {llama_vocab_bos(vocab_)};
  if (llama_vocab_get_add_eos(vocab_)) frame.behind = {llama_vocab_eos(vocab_)};
  return frame;
}

bool Target::ends(std::int32_t token) const {
  return llama_vocab_is_eog(vocab_, token);
}
bool Target::adds_bos() const {
  return llama_vocab_get_add_bos(vocab_);
}
std::string Target::bos_text() const {
  return facts_.bos_id >= 0 ? piece(facts_.bos_id, true) : std::string();
}
std::string Target::eos_text() const {
  return facts_.eos_id >= 0 ? piece(facts_.eos_id, true) : std::string();
}

std::string Target::chat_template(bool for_tools) const {
  const char* text = for_tools ? llama_model_chat_template(model_, "tool_use") : nullptr;
  if (text == nullptr) text = llama_model_chat_template(model_, nullptr);
  return text != nullptr ? text : std::string();
}

}  // namespace eaglet
