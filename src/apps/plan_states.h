#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "formats/json.h"
#include "store/forecast.h"

namespace eaglet::apps {

/// What `eaglet plan` has to know to tell the bytes of states. Lengths come from conversations, from a file
/// of lengths, or from a count and a mean; the shape from a target model or from two numbers.
struct PlanStatesFlags {
  std::string model, conversations, lengths, output_dir = ".", store_dtype = "bf16";
  std::vector<std::int32_t> target_layer_ids;
  std::int64_t max_seq_len = 0, samples = 0, mean_tokens = 0, hidden_size = 0, slots = 0;
  std::uint64_t free_bytes = 0, shard_bytes = std::uint64_t{1} << 30;
  bool drop_unsupervised = false, force = false;
};

struct StatesPlan {
  StoreHeader header;
  Forecast forecast;
  std::uint64_t free_bytes = 0;
  std::int64_t uncut_tokens = 0;  // without the length limit
};

void add_plan_states_flags(CLI::App& app, PlanStatesFlags* flags);
/// Is anything asked for that needs a plan of states?
bool wants_states_plan(const PlanStatesFlags& flags);
Result<StatesPlan> plan_states(const PlanStatesFlags& flags);
Json states_plan_json(const StatesPlan& plan);
std::string states_plan_text(const StatesPlan& plan);
/// kNoSpace with the levers when the disk is too small; ok with --force.
Status check_states_plan(const StatesPlan& plan, const PlanStatesFlags& flags);

}  // namespace eaglet::apps
