#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "formats/conversations.h"
#include "formats/row_reasons.h"
#include "verifier/generator.h"

namespace eaglet {

/// Answers come from servers instead of the embedded target when `urls` is not empty.
struct ServedOptions {
  std::string model;                           // name of the model to ask for; empty: the one that is served
  std::string kind = "auto";                   // auto | vllm | sglang | llama | openai
  std::string api_key_env = "EAGLET_API_KEY";  // the environment variable that holds the key
  std::string ca_file;                         // certificates to trust instead of the system's
  std::int64_t concurrency = 64;               // talks under way, over all servers
  double timeout_seconds = 600, retry_wait_seconds = 1, wait_ready_seconds = 30, stall_seconds = 30;
  std::int64_t tries = 6;           // of one request
  bool expect_thinking = false;     // its absence in the first answers ends the run
  std::string regenerate = "none";  // none | last | all: the assistant's turns that are written anew
  std::string cut = "keep";         // answers cut by length: keep (their end is not learnt) | leave-out
  std::string request_json;         // further fields of every request, a JSON object
  std::string template_path, template_arguments;  // where the server gives no token ids: see RenderOptions
};

/// States that the native engine computes on the way, with each finished answer.
struct KeepStates {
  std::vector<std::int32_t> layers;  // captured, in this order; the last state follows. Empty: none are kept
  bool required = false;             // libllama instead is an error, not a note
  /// Told the prompts' tokens and the longest answer before anything is answered: what to say of the room
  /// that the states need, or kNoSpace.
  std::function<Result<std::string>(const std::vector<std::int64_t>& prompt_tokens, std::int64_t max_tokens)>
      foresee;
  /// Called with the answer's row, after it was written, and its states: bf16 [tokens, layers and the last,
  /// hidden].
  std::function<Status(const Conversation&, std::vector<std::uint16_t>)> take;
};

struct GenerateOptions {
  std::string model_path;            // the target; with servers only its tokenizer, where they give no ids
  std::vector<std::string> servers;  // addresses; empty: the embedded target
  ServedOptions served;
  std::string prompts_path;      // JSONL
  std::string output_path;       // conversations.jsonl, appended to; finished ids in it are not asked again
  std::int64_t max_prompts = 0;  // 0 = all
  std::int64_t max_tokens = 256;
  double temperature = 0;  // 0 = greedy
  double top_p = 1.0;
  std::int64_t top_k = 0;         // 0 = all
  double min_p = 0;               // of the likeliest token's probability
  double repetition_penalty = 1;  // see SamplingOptions
  std::uint64_t seed = 0;
  int parallel = 0;             // sequences decoded together; 0 = 64 with the native engine, 16 with libllama
  int threads = 0;              // 0 = all cores
  std::string engine = "auto";  // auto | native | llama
  std::string tokenizer_path;   // native: another target whose tokenizer is used; empty: the model's own
  std::string memory;           // native: weights and caches, as 4G; empty: half of what is free
  std::string compute_type =
      "auto";              // native: products in f32 or bf16; auto: bf16 where the processor has it
  std::string draft_path;  // native: a checkpoint folder; it proposes tokens, the target checks them
  std::int64_t draft_length = 3;
  KeepStates keep;               // native only: libllama's are not there to be kept
  std::string weights = "auto";  // libllama: auto | stored | f16 | f32: TargetWeightsAs
};

/// What became of the prompts that servers were asked in this run; they add up to `asked`.
struct ServedCounts {
  std::int64_t asked = 0;
  std::int64_t whole = 0, cut_while_thinking = 0, cut_in_answer = 0;  // kept, unless cut ones are left out
  std::int64_t empty = 0, refused = 0;                                // no sample
  ReasonCounts failed;                // no sample: broken replies, time-outs, what the template cannot render
  std::int64_t not_reached = 0;       // stopped before an answer came
  std::int64_t without_thinking = 0;  // of the kept ones
  std::int64_t tokenised_here = 0;    // rows whose ids are not the server's but our tokenizer's
  std::int64_t requests = 0, retried = 0, busy = 0;
  double cpu_seconds = 0;  // of the one thread that does it, from the first request to the last answer
};

struct GenerateReport {
  std::int64_t lines = 0, blank_lines = 0;
  ReasonCounts left_out;  // lines that are no prompt
  std::int64_t prompts = 0, already_done = 0, answered = 0, empty_answers = 0, broken_lines = 0;
  std::int64_t too_long = 0;                    // prompts that fit neither the context nor the template
  std::int64_t stopped = 0, cut_by_length = 0;  // finish_reason of all answers in the file
  std::int64_t prompt_tokens = 0, response_tokens = 0;  // all answers in the file
  double seconds = 0, tokens_per_second = 0;            // this run: response tokens
  std::int64_t reused_prompt_tokens = 0;  // this run: not computed again, another prompt began the same way
  DraftCounts drafts;                     // this run: of all answers, with a draft
  ServedCounts served;
};

/// Answers prompts with the embedded target, or with servers. kInterrupted after a signal: finished answers
/// are in the file.
Result<GenerateReport> generate(const GenerateOptions& options, Progress& progress);

}  // namespace eaglet
