#include "export/loader_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace eaglet {
namespace {

// Architectures whose graph in llama.cpp 0c1e570 (src/models) fills t_layer_inp. Sorted.
constexpr std::array kMarksLayerInputs = std::to_array<std::string_view>(
    {"bailingmoe3",  "deepseek4", "gemma4",     "gpt-oss",        "hunyuan-dense", "hunyuan_vl",
     "lfm2",         "lfm2moe",   "llama",      "mimo2",          "minimax-01",    "minimax-m2",
     "muse-glimmer", "nanbeige",  "nemotron_h", "nemotron_h_moe", "qwen3",         "qwen35",
     "qwen35moe",    "qwen3moe",  "qwen3next",  "qwen4exp"});
static_assert(std::is_sorted(kMarksLayerInputs.begin(), kMarksLayerInputs.end()));

class Warnings {
 public:
  void add(bool applies, const char* loader, std::string what) {
    if (applies) list.push_back({loader, std::move(what)});
  }
  std::vector<LoaderWarning> list;
};

bool has_window(const DraftConfig& c) {
  return std::any_of(c.sliding_window.begin(), c.sliding_window.end(),
                     [](auto window) { return window > 0; });
}

void add_vllm(const DraftConfig& c, Warnings* w) {
  w->add(
      c.num_aux() != 3, "vLLM 0.32",
      fmt::format("takes the width of fc from num_aux_hidden_states, not from the layer list; it is written "
                  "({}), older releases stop at loading",
                  c.num_aux()));
  w->add(
      c.rope.type != "default" && c.rope.type != "llama3" && c.rope.type != "yarn" && c.rope.type != "linear",
      "vLLM 0.32", "does not know the rotary type " + c.rope.type);
}

void add_sglang(const DraftWeights& draft, Warnings* w) {
  const DraftConfig& c = draft.config;
  constexpr const char* kAll = "SGLang";
  constexpr const char* kOld = "SGLang before fc_norm";
  w->add(c.norm_before_residual, kAll,
         "ignores norm_before_residual: the residual would be the state before its norm");
  w->add(c.norm_before_fc, kAll, "ignores norm_before_fc and skips input_norm.weight without a word");
  w->add(c.fc_norm, kOld, "ignores fc_norm and skips fc_norm.* without a word");
  w->add(c.norm_output, kOld, "ignores norm_output: it carries the state before its norm");
  w->add(c.norm_output, "SpecForge", "reads norm_output with another meaning (norm before the head)");
  w->add(c.num_layers > 1, kOld, "runs the first layer only");
  w->add(c.num_aux() != 3, kOld, "always builds fc for three captured layers");
  w->add(has_window(c), kAll,
         "ignores the draft's sliding window unless the server has the same one as a flag");
  w->add(c.qk_norm, kAll, "skips q_norm and k_norm without a word");
  w->add(c.attention_bias || c.mlp_bias, kAll, "skips biases without a word");
  w->add(!draft.embed_tokens.empty() && c.hidden == c.target_hidden, kAll,
         "puts the target's embedding over the draft's own");
  w->add(c.aux_layers.front() == 0, kAll,
         "counts outputs of layers and cannot name the embedding (layer id 0): eagle_config is left out");
}

void add_llama_cpp(const DraftConfig& c, const std::string& architecture, Warnings* w) {
  constexpr const char* kLoader = "llama.cpp 0c1e570";
  w->add(c.norm_output, kLoader, "knows no norm_output: it carries the state before its norm");
  w->add(has_window(c), kLoader, "always attends to all: the draft's sliding window is ignored");
  w->add(!architecture.empty() && !llama_cpp_marks_layer_inputs(architecture), kLoader,
         fmt::format(
             "hands out no layer inputs for targets of architecture {}: its server aborts when the draft "
             "asks for them",
             architecture));
}

}  // namespace

bool llama_cpp_marks_layer_inputs(const std::string& architecture) {
  return std::binary_search(kMarksLayerInputs.begin(), kMarksLayerInputs.end(), architecture);
}

std::vector<LoaderWarning> loader_warnings(const DraftWeights& draft, ExportLayout layout,
                                           const std::string& target_architecture) {
  Warnings warnings;
  switch (layout) {
    case ExportLayout::kSpeculators:
      add_vllm(draft.config, &warnings);
      break;
    case ExportLayout::kSglang:
      add_vllm(draft.config, &warnings);
      add_sglang(draft, &warnings);
      break;
    case ExportLayout::kGguf:
      add_llama_cpp(draft.config, target_architecture, &warnings);
      break;
  }
  return std::move(warnings.list);
}

}  // namespace eaglet
