#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet::apps {

class Recipe;

/// What a plan has to be told when no model, server or machine is there: section [plan] of a recipe. 0: not
/// told. The target's shape comes from its file when that is there.
struct PlanFacts {
  std::int64_t hidden_size = 0, num_layers = 0, vocab_size = 0;                       // of the target
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, intermediate_size = 0;  // of the draft
  double active_params_billion = 0;  // of the target: parameters that work on one token
  std::int64_t prompts = 0, prompt_tokens = 0, answer_tokens = 0;  // how many, and their means
  double server_tokens_per_second = 0, extract_tokens_per_second = 0;
  double train_teraflops = 0;  // what one rank reaches in training
  std::int64_t ranks = 0;      // that train; 0: as [run] says
  double free_terabytes = 0;   // of the disk that will hold the states; 0: of output_dir's disk, now
};

/// Every stage of a recipe with what it will move, compute and need; nothing is run, asked or written.
/// kConfig names what is not told. `json` has the same numbers by stage.
Result<Json> plan_run(const Recipe& recipe);
std::string run_plan_text(const Json& plan);

}  // namespace eaglet::apps
