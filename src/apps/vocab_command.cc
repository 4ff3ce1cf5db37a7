#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/command.h"
#include "base/files.h"
#include "formats/json.h"
#include "formats/target_model.h"
#include "formats/tokenizer_hash.h"
#include "store/store.h"
#include "vocab/vocab_files.h"

namespace eaglet::apps {
namespace {

constexpr double kLowCoverage = 0.95;

struct VocabFlags {
  std::string counts, states, map, map_holds = "auto", model, to = "eaglet", output;
  std::int64_t draft_vocab = 0, target_vocab = 0;
  std::vector<std::int32_t> special_ids, end_ids;
};

/// What the ids mean: from the target, from the file of counts, from flags.
struct VocabTarget {
  std::int64_t vocab = 0;
  std::vector<std::int32_t> special_ids, end_ids;
  std::string tokenizer_hash;
};

Result<VocabTarget> vocab_target(const VocabFlags& flags) {
  VocabTarget target{flags.target_vocab, flags.special_ids, flags.end_ids, ""};
  if (!flags.model.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(flags.model));
    EAGLET_ASSIGN_OR_RETURN(target.tokenizer_hash, tokenizer_hash(flags.model));
    target.vocab = facts.vocab;
    target.special_ids = facts.special_ids;
    target.end_ids = facts.end_ids;
  } else if (flags.counts.ends_with(".json")) {
    EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(flags.counts));
    const auto add = [&](const char* key, std::vector<std::int32_t>* ids) {
      if (!ids->empty() || !json.is_object() || !json.contains(key)) return;
      for (const Json& id : json[key].is_array() ? json[key] : Json::array({json[key]}))
        if (id.is_number_unsigned()) ids->push_back(id.get<std::int32_t>());
    };
    add("special_token_ids", &target.special_ids);
    add("eos_token_id", &target.end_ids);
    if (target.vocab == 0 && json.is_object() && json.contains("target_vocab_size") &&
        json["target_vocab_size"].is_number_unsigned())
      target.vocab = json["target_vocab_size"].get<std::int64_t>();
  }
  return target;
}

Result<std::vector<std::int64_t>> count_store(const std::string& path, std::int64_t vocab,
                                              Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const auto store, StoreReader::open(path));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab), 0);
  progress.begin("count tokens", store->documents().size(), "documents");
  for (std::size_t i = 0; i < store->documents().size(); ++i) {
    EAGLET_ASSIGN_OR_RETURN(const DocumentStates document, store->read_tokens(i));
    for (std::size_t t = 0; t < document.input_ids.size(); ++t) {
      if (document.loss_mask[t] == 0) continue;
      if (document.input_ids[t] >= vocab)
        return Status(
            StatusCode::kConfig,
            fmt::format("token id {} is outside the vocabulary of {}", document.input_ids[t], vocab), path,
            "give the target that the states were made with");
      ++counts[static_cast<std::size_t>(document.input_ids[t])];
    }
    progress.update(i + 1);
  }
  progress.end("");
  return counts;
}

VocabLayout layout_of(const std::string& to) {
  return to == "speculators" ? VocabLayout::kSpeculators
         : to == "specforge" ? VocabLayout::kSpecForge
         : to == "sglang"    ? VocabLayout::kSglang
                             : VocabLayout::kEaglet;
}

/// A map that lies about in the output's place is never used: it is replaced, and why is said.
void tell_old_map(const VocabFlags& flags, const VocabTarget& target, const VocabMap& fresh,
                  Progress& progress) {
  if (!path_exists(flags.output) || flags.to != "eaglet") return;
  const auto old = read_vocab_map(flags.output, target.vocab);
  if (!old.ok()) {
    progress.note("the map at " + flags.output + " cannot be used and is replaced: " + old.status().what());
    return;
  }
  const std::string stale =
      stale_reason(*old, target.vocab, fresh.vocab.size(), fresh.tokenizer_hash, fresh.counts_hash);
  if (!stale.empty()) progress.note("the map at " + flags.output + " is replaced: " + stale);
}

Result<std::vector<std::int64_t>> read_counts(const VocabFlags& flags, const VocabTarget& target,
                                              Progress& progress) {
  if (!flags.states.empty()) return count_store(flags.states, target.vocab, progress);
  if (!flags.counts.empty()) return read_token_counts(flags.counts, target.vocab);
  return std::vector<std::int64_t>();
}

Result<VocabMap> make_map(const VocabFlags& flags, const VocabTarget& target,
                          const std::vector<std::int64_t>& counts) {
  VocabMap map;
  map.tokenizer_hash = target.tokenizer_hash;
  if (!flags.map.empty()) {
    const BareList bare = flags.map_holds == "ids"       ? BareList::kIds
                          : flags.map_holds == "offsets" ? BareList::kOffsets
                                                         : BareList::kUnknown;
    EAGLET_ASSIGN_OR_RETURN(map, read_vocab_map(flags.map, target.vocab, bare));
    const std::string stale = stale_reason(map, target.vocab, flags.draft_vocab, target.tokenizer_hash,
                                           counts.empty() ? "" : hash_counts(counts));
    if (stale.empty()) return map;
    return Status(StatusCode::kConfig, "this map must not be used: " + stale, flags.map,
                  "make a new one from the counts: eaglet vocab --states or --counts");
  }
  if (counts.empty())
    return Status(StatusCode::kUsage, "there is nothing to choose by", "eaglet vocab",
                  "give --states, --counts, or an existing --map");
  if (flags.draft_vocab < 1)
    return Status(StatusCode::kUsage, "--draft-vocab-size is missing", "eaglet vocab",
                  "how many ids the draft speaks");
  EAGLET_ASSIGN_OR_RETURN(map.vocab,
                          choose_draft_vocab(counts, target.special_ids, target.end_ids, flags.draft_vocab));
  map.counts_hash = hash_counts(counts);
  return map;
}

Status run_vocab(const VocabFlags& flags, Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const VocabTarget target, vocab_target(flags));
  if (target.vocab < 1)
    return Status(StatusCode::kUsage, "the size of the target's vocabulary is not known", "eaglet vocab",
                  "give --model, or --target-vocab-size");
  EAGLET_ASSIGN_OR_RETURN(const auto counts, read_counts(flags, target, *context.progress));
  EAGLET_ASSIGN_OR_RETURN(const VocabMap map, make_map(flags, target, counts));
  const double covered = counts.empty() ? 1.0 : covered_share(map.vocab, counts);
  if (!counts.empty() && covered < kLowCoverage)
    context.progress->note(
        fmt::format("warning: only {:.2f} % of the supervised tokens are in the draft vocabulary; "
                    "the rest is never drafted",
                    100 * covered));
  const bool written = !flags.output.empty() && !map.vocab.is_full();
  if (written) {
    tell_old_map(flags, target, map, *context.progress);
    EAGLET_RETURN_IF_ERROR(write_vocab_map(map, layout_of(flags.to), counts, flags.output));
  }
  if (context.json) {
    const Json json = {{"schema", 1},
                       {"draft_vocab_size", map.vocab.size()},
                       {"target_vocab_size", map.vocab.target_vocab},
                       {"covered_share", counts.empty() ? Json(nullptr) : Json(covered)},
                       {"full", map.vocab.is_full()},
                       {"output", written ? Json(flags.output) : Json(nullptr)},
                       {"target_ids", map.vocab.target_ids}};
    fmt::print("{}\n", json_line(json));
    return {};
  }
  fmt::print("draft vocabulary {} of {}{}\n", map.vocab.size(), map.vocab.target_vocab,
             map.vocab.is_full() ? ": the whole one, no map is needed or written" : "");
  if (!counts.empty()) fmt::print("covers {:.2f} % of the supervised tokens\n", 100 * covered);
  if (written) fmt::print("written to {} ({})\n", flags.output, flags.to);
  return {};
}

}  // namespace

Run add_vocab(CLI::App& app) {
  app.description("chooses the ids that a draft speaks, or turns a map into another tool's");
  app.footer(
      "  eaglet vocab --states runs/a/states --model target.gguf --draft-vocab-size 32000 --output "
      "map.safetensors\n"
      "  eaglet vocab --counts token_freq.pt --model target.gguf --draft-vocab-size 32000 --to speculators "
      "--output m\n"
      "  eaglet vocab --map vocab_mapping.pt --model target.gguf --to sglang --output hot_tokens.pt");
  auto flags = std::make_shared<VocabFlags>();
  app.add_option("--states", flags->states, "a state store: its supervised tokens are counted");
  app.add_option("--counts", flags->counts,
                 "counts: speculators' token_freq.pt, or JSON {\"counts\": {\"id\": n}}");
  app.add_option(
      "--map", flags->map,
      "an existing map: ours, a folder of d2t.npy and t2d.npy, vocab_mapping.pt, a list of hot tokens");
  app.add_option("--map-holds", flags->map_holds, "what a bare list in --map holds: ids, offsets, or auto")
      ->check(CLI::IsMember({"auto", "ids", "offsets"}).description(""));
  app.add_option("--model", flags->model, "the target: GGUF or transformers folder");
  app.add_option("--target-vocab-size", flags->target_vocab, "without --model");
  app.add_option("--draft-vocab-size", flags->draft_vocab, "how many ids");
  app.add_option("--to", flags->to, "eaglet, speculators (a folder), specforge or sglang")
      ->check(CLI::IsMember({"eaglet", "speculators", "specforge", "sglang"}).description(""));
  app.add_option("--output,-o", flags->output, "where the map goes");
  return [flags](Context& context) { return run_vocab(*flags, context); };
}

}  // namespace eaglet::apps
