#include "formats/target_architectures.h"

#include <algorithm>
#include <array>

namespace eaglet {
namespace {

// Read from llama.cpp 0c1e570, src/models: the graph names "l_out" and normalises with LLM_NORM_RMS before
// the head. Left out: encoders, diffusion models, drafts, and models whose graph scales or masks the logits
// by constants that the file does not carry. Sorted.
constexpr std::array kArchitectures = std::to_array<std::string_view>({
    "afmoe",        "apertus",     "arcee",         "arctic",         "baichuan",
    "bailingmoe",   "bailingmoe2", "bitnet",        "deci",           "deepseek",
    "deepseek2",    "deepseek32",  "deepseek4",     "dots1",          "ernie4_5",
    "ernie4_5-moe", "exaone",      "exaone-moe",    "exaone4",        "falcon-h1",
    "gemma",        "gemma2",      "gemma3",        "glm-dsa",        "glm4moe",
    "gpt-oss",      "granite",     "granitehybrid", "grovemoe",       "hunyuan-dense",
    "hunyuan-moe",  "internlm2",   "kimi-k3",       "kimi-linear",    "lfm2",
    "llama",        "llama4",      "mimo2",         "minimax-m2",     "minimax-m3",
    "mistral3",     "mistral4",    "nanbeige",      "nemotron_h",     "nemotron_h_moe",
    "olmo2",        "olmoe",       "openelm",       "pangu-embedded", "plamo",
    "plm",          "qwen",        "qwen2",         "qwen2moe",       "qwen2vl",
    "qwen3",        "qwen35",      "qwen35moe",     "qwen3moe",       "qwen3next",
    "qwen3vl",      "qwen3vlmoe",  "refact",        "seed_oss",       "smallthinker",
    "smollm3",      "xverse",
});
static_assert(std::is_sorted(kArchitectures.begin(), kArchitectures.end()));

}  // namespace

bool is_target_architecture(std::string_view architecture) {
  return std::binary_search(kArchitectures.begin(), kArchitectures.end(), architecture);
}

std::string usual_target_architectures() {
  return "llama, llama4, qwen2, qwen3, qwen3moe, deepseek2 (also Kimi-K2), gemma3, gpt-oss, mistral3, "
         "glm4moe";
}

}  // namespace eaglet
