#include "apps/plan_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/files.h"
#include "extract/extract.h"
#include "formats/conversations.h"
#include "formats/layer_ids.h"
#include "formats/target_model.h"
#include "store/state_codec.h"

namespace eaglet::apps {
namespace {

Status plan_usage(const std::string& what, const std::string& todo) {
  return Status(StatusCode::kUsage, what, "eaglet plan", todo);
}

/// Rows {"tokens": N} with an optional id, one a line; also {"input_ids": [...]}.
Result<std::vector<DocumentSize>> read_lengths(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<DocumentSize> sizes;
  std::size_t begin = 0;
  for (std::uint64_t line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row(text.data() + begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") == row.npos) continue;
    const auto json = parse_json(row);
    if (!json.ok() || !json->is_object() || !json->contains("tokens") ||
        !(*json)["tokens"].is_number_unsigned() || (*json)["tokens"].get<std::uint64_t>() > INT32_MAX)
      return Status(StatusCode::kDataLoss, "not a line {\"tokens\": N}", fmt::format("{}:{}", path, line),
                    "give one JSON object with the number of tokens for each document");
    const std::string id = json->contains("id") && (*json)["id"].is_string()
                               ? (*json)["id"].get<std::string>()
                               : std::string(8, 'x');
    sizes.push_back({(*json)["tokens"].get<std::int64_t>(), static_cast<std::int64_t>(id.size())});
  }
  return sizes;
}

Result<std::vector<DocumentSize>> document_sizes(const PlanStatesFlags& flags, std::int64_t limit) {
  if (!flags.lengths.empty()) return read_lengths(flags.lengths);
  std::vector<DocumentSize> sizes;
  if (flags.samples > 0) {
    if (flags.mean_tokens < 1)
      return plan_usage("--samples needs --mean-tokens", "say how long one is on average");
    sizes.assign(static_cast<std::size_t>(flags.samples), {flags.mean_tokens, 8});
    return sizes;
  }
  EAGLET_ASSIGN_OR_RETURN(ConversationFile file, read_conversations(flags.conversations));
  for (Conversation& row : file.conversations) {
    if (limit > 0 && static_cast<std::int64_t>(row.loss_mask.size()) > limit)
      row.loss_mask.resize(static_cast<std::size_t>(limit));
    const KeptRows kept = kept_rows(row.loss_mask, true);
    sizes.push_back({static_cast<std::int64_t>(row.input_ids.size()),
                     static_cast<std::int64_t>(row.id.size()), kept.aux_rows, kept.last_rows()});
  }
  return sizes;
}

Result<StoreHeader> plan_header(const PlanStatesFlags& flags) {
  StoreHeader header;
  if (flags.model.empty()) {
    if (flags.hidden_size < 1)
      return plan_usage("neither --model nor --hidden-size is given",
                        "one of them gives the width of a state");
    if (flags.slots < 2)
      return plan_usage(fmt::format("--slots {} leaves no captured layer", flags.slots),
                        "slots are the captured layers and the last state: usually 4");
    header.target_identity = "0123456789abcdef";
    header.target_name = "target";
    header.hidden = flags.hidden_size;
    for (std::int32_t id = 1; id < flags.slots; ++id) header.aux_layers.push_back(id);
    header.target_layers = flags.slots;
    return header;
  }
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(flags.model));
  header.target_identity = facts.identity;
  header.target_name = facts.name;
  header.hidden = facts.hidden;
  header.target_layers = facts.num_layers;
  header.aux_layers = flags.target_layer_ids;
  if (header.aux_layers.empty()) {
    EAGLET_ASSIGN_OR_RETURN(header.aux_layers, usual_layer_ids(facts.num_layers));
  }
  EAGLET_RETURN_IF_ERROR(check_layer_ids(header.aux_layers, 0, facts.num_layers));
  return header;
}

}  // namespace

void add_plan_states_flags(CLI::App& app, PlanStatesFlags* flags) {
  app.add_option("--model", flags->model, "the target: width, layers");
  app.add_option("--conversations", flags->conversations, "conversations.jsonl: how many, how long");
  app.add_option("--lengths", flags->lengths, "instead: JSON lines {\"tokens\": N}");
  app.add_option("--samples", flags->samples, "instead: so many documents ...");
  app.add_option("--mean-tokens", flags->mean_tokens, "... of so many tokens each");
  app.add_option("--target-layer-ids", flags->target_layer_ids, "captured layers (default 2, L/2, L-3)")
      ->delimiter(',');
  app.add_option("--hidden-size", flags->hidden_size, "without --model: width of a state");
  app.add_option("--slots", flags->slots, "without --model: captured layers and the last state");
  app.add_option("--max-seq-len,--max-tokens", flags->max_seq_len,
                 "cut documents to this many tokens, as extract does");
  app.add_option("--states-dir", flags->output_dir, "where the states will lie: its free space counts")
      ->capture_default_str();
  app.add_option("--free-bytes", flags->free_bytes, "instead: so much is free");
  app.add_option("--store-dtype", flags->store_dtype, "bf16, bf16-lossless or fp8")->capture_default_str();
  app.add_flag("--drop-unsupervised", flags->drop_unsupervised,
               "without states that no drafting step can reach (needs --conversations)");
  app.add_option("--shard-bytes", flags->shard_bytes, "size at which a new file begins")
      ->capture_default_str();
  app.add_flag("--force", flags->force, "do not fail when the disk is too small");
}

bool wants_states_plan(const PlanStatesFlags& flags) {
  return !flags.conversations.empty() || !flags.lengths.empty() || flags.samples > 0;
}

Result<StatesPlan> plan_states(const PlanStatesFlags& flags) {
  StatesPlan plan;
  EAGLET_ASSIGN_OR_RETURN(const StoreWriterOptions store,
                          store_options(flags.store_dtype, flags.drop_unsupervised, flags.shard_bytes, ""));
  EAGLET_ASSIGN_OR_RETURN(plan.header, plan_header(flags));
  const std::int64_t limit = flags.max_seq_len;
  EAGLET_ASSIGN_OR_RETURN(std::vector<DocumentSize> sizes, document_sizes(flags, limit));
  for (DocumentSize& size : sizes) {
    plan.uncut_tokens += size.tokens;
    if (limit > 0) size.tokens = std::min(size.tokens, limit);
  }
  if (store.encoding == StateEncoding::kFp8) plan.header.dtype = Dtype::kF8E4M3;
  plan.forecast = forecast_store(plan.header, sizes, store);
  plan.free_bytes = flags.free_bytes;
  if (plan.free_bytes == 0) {
    EAGLET_ASSIGN_OR_RETURN(plan.free_bytes, free_disk_bytes(flags.output_dir));
  }
  return plan;
}

Json states_plan_json(const StatesPlan& plan) {
  const Forecast& f = plan.forecast;
  return {{"documents", f.documents},
          {"tokens", f.tokens},
          {"tokens_without_limit", plan.uncut_tokens},
          {"slots", plan.header.slots()},
          {"hidden_size", plan.header.hidden},
          {"bytes_per_token", f.bytes_per_token},
          {"state_bytes", f.state_bytes},
          {"needed_bytes", f.needed_bytes},
          {"exact", f.exact},
          {"shards", f.shards},
          {"free_bytes", plan.free_bytes},
          {"fits", f.needed_bytes <= plan.free_bytes}};
}

std::string states_plan_text(const StatesPlan& plan) {
  const Forecast& f = plan.forecast;
  std::string text =
      fmt::format("states           {} documents, {} tokens, {} slots of width {}: {} bytes a token\n",
                  f.documents, f.tokens, plan.header.slots(), plan.header.hidden, f.bytes_per_token);
  text += fmt::format("                 {}\n", forecast_text(f, plan.free_bytes));
  text += fmt::format("                 {} bytes of states, {} bytes in {} files\n", f.state_bytes,
                      f.needed_bytes, f.shards);
  if (plan.uncut_tokens != f.tokens)
    text += fmt::format("                 without the length limit: {} tokens, {} bytes of states\n",
                        plan.uncut_tokens, static_cast<std::uint64_t>(plan.uncut_tokens) * f.bytes_per_token);
  return text;
}

Status check_states_plan(const StatesPlan& plan, const PlanStatesFlags& flags) {
  return check_forecast(plan.forecast, plan.free_bytes, flags.output_dir, flags.force);
}

}  // namespace eaglet::apps
