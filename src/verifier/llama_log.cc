#include "verifier/llama_log.h"

#include <llama.h>
#include <log.h>

#include <mutex>
#include <utility>

namespace eaglet {
namespace {

std::mutex log_mutex;
std::string first_error;

void receive(ggml_log_level level, const char* text, void*) {
  if (level != GGML_LOG_LEVEL_ERROR || text == nullptr) return;
  std::string line = text;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  const std::size_t after_function = line.find(": ");
  if (after_function != std::string::npos) line.erase(0, after_function + 2);
  const std::lock_guard lock(log_mutex);
  if (first_error.empty()) first_error = line;
}

}  // namespace

void quiet_llama_log() {
  llama_log_set(receive, nullptr);
  common_log_set_verbosity_thold(-1);  // the chat templates have a log of their own
}

std::string take_llama_error() {
  const std::lock_guard lock(log_mutex);
  return std::exchange(first_error, {});
}

}  // namespace eaglet
