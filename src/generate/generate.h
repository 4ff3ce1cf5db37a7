#pragma once

#include <cstdint>
#include <string>

#include "base/progress.h"
#include "base/status.h"

namespace eaglet {

struct GenerateOptions {
  std::string model_path;        // GGUF
  std::string prompts_path;      // JSONL
  std::string output_path;       // conversations.jsonl, appended to; finished ids in it are not asked again
  std::int64_t max_prompts = 0;  // 0 = all
  std::int64_t max_tokens = 256;
  double temperature = 0;  // 0 = greedy
  double top_p = 1.0;
  std::uint64_t seed = 0;
  int parallel = 16;             // sequences decoded together
  int threads = 0;               // 0 = all cores
  std::string weights = "auto";  // auto | stored | f16 | f32: TargetWeightsAs
};

struct GenerateReport {
  std::int64_t prompts = 0, already_done = 0, answered = 0, empty_answers = 0, broken_lines = 0;
  std::int64_t too_long = 0;                    // prompts that fit neither the context nor the template
  std::int64_t stopped = 0, cut_by_length = 0;  // finish_reason of all answers in the file
  std::int64_t prompt_tokens = 0, response_tokens = 0;  // all answers in the file
  double seconds = 0, tokens_per_second = 0;            // this run: response tokens
};

/// Answers prompts with the embedded target. kInterrupted after a signal: finished answers are in the file.
Result<GenerateReport> generate(const GenerateOptions& options, Progress& progress);

}  // namespace eaglet
