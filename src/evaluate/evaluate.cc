#include "evaluate/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/interrupt.h"
#include "batch/loader.h"
#include "device/threads.h"
#include "draft/draft_model.h"
#include "evaluate/acceptance.h"
#include "evaluate/walk.h"
#include "formats/target_model.h"
#include "store/store.h"

namespace eaglet {
namespace {

Result<std::vector<std::size_t>> documents_named(const StoreReader& store,
                                                 const std::vector<std::string>& ids) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < store.documents().size(); ++i) places.emplace(store.documents()[i].id, i);
  std::vector<std::size_t> chosen;
  for (const std::string& id : ids) {
    const auto place = places.find(id);
    if (place == places.end())
      return Status(StatusCode::kNotFound, fmt::format("the store has no document \"{}\"", id));
    chosen.push_back(place->second);
  }
  return chosen;
}

Result<std::vector<std::size_t>> chosen_documents(const StoreReader& store, const EvaluateOptions& options) {
  if (!options.ids.empty()) return documents_named(store, options.ids);
  std::vector<std::size_t> chosen;
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, options.hold_out_every));
  for (std::size_t i = 0; i < store.documents().size(); i += step) chosen.push_back(i);
  return chosen;
}

/// The most tokens of the answer of each document of a batch; -1: all of it, and later answers.
std::vector<std::int64_t> answer_limits(const StoreReader& store, const std::vector<std::size_t>& documents,
                                        const std::map<std::string, std::int64_t>& tokens) {
  std::vector<std::int64_t> limits;
  for (const std::size_t document : documents) {
    const auto limit = tokens.find(store.documents()[document].id);
    limits.push_back(limit == tokens.end() ? -1 : limit->second);
  }
  return limits;
}

Status check_store(const StoreHeader& header, const TargetFacts& target, const DraftConfig& draft) {
  if (header.target_identity != target.identity)
    return Status(
        StatusCode::kConfig,
        fmt::format(
            "the states were made by another target ({}, identity {}) than the one given ({}, identity {})",
            header.target_name, header.target_identity, target.name, target.identity),
        target.path, "give the model that the states were extracted from, or extract again");
  if (header.aux_layers != draft.aux_layers)
    return Status(StatusCode::kConfig,
                  fmt::format("the store holds layers [{}], the draft reads [{}]",
                              fmt::join(header.aux_layers, ", "), fmt::join(draft.aux_layers, ", ")),
                  "", "extract again with --target-layer-ids of the draft");
  if (header.hidden != draft.target_hidden || target.vocab != draft.vocab)
    return Status(
        StatusCode::kConfig,
        fmt::format("the draft is made for a target of width {} and {} tokens, this one has {} and {}",
                    draft.target_hidden, draft.vocab, header.hidden, target.vocab));
  return {};
}

struct Loaded {
  std::unique_ptr<StoreReader> store;
  TargetFacts target;
  TargetWeights weights;
  DraftWeights draft;
};

Result<Loaded> load(const EvaluateOptions& options) {
  Loaded l;
  EAGLET_ASSIGN_OR_RETURN(l.target, read_target_facts(options.model_path));
  EAGLET_ASSIGN_OR_RETURN(l.store, StoreReader::open(options.store_path));
  EAGLET_ASSIGN_OR_RETURN(l.draft, read_draft(options.draft_path, false, nullptr));
  EAGLET_RETURN_IF_ERROR(check_store(l.store->header(), l.target, l.draft.config));
  EAGLET_ASSIGN_OR_RETURN(l.weights, read_target_weights(options.model_path));
  return l;
}

}  // namespace

Result<EvaluateReport> evaluate(const EvaluateOptions& options, Progress& progress) {
  if (options.ttt_steps < 1)
    return Status(StatusCode::kUsage, "at least one depth has to be evaluated", "--ttt-steps");
  if (!(options.temperature >= 0))
    return Status(StatusCode::kUsage, "--temperature is below 0", "eaglet evaluate",
                  "give what the server samples at");
  if (options.threads > 0) set_num_threads(options.threads);
  EAGLET_ASSIGN_OR_RETURN(Loaded l, load(options));
  PackingOptions packing;
  packing.max_seq_len = options.max_seq_len;
  packing.shuffle = false;
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::size_t> documents, chosen_documents(*l.store, options));
  EAGLET_ASSIGN_OR_RETURN(PackPlan plan, PackPlan::make(*l.store, documents, packing));
  TttOptions ttt;
  ttt.ttt_steps = static_cast<int>(options.ttt_steps);
  const VerifierTensors verifier{l.weights.embed_tokens.data(), l.weights.final_norm.data(),
                                 l.weights.head().data(), l.target.rms_norm_eps};
  const std::vector<std::int32_t> draft_ids = l.draft.vocab.target_ids;
  const OverlapInputs overlap{.temperature = options.temperature,
                              .target_hidden = l.draft.config.target_hidden,
                              .vocab = l.target.vocab,
                              .final_norm = l.weights.final_norm.data(),
                              .lm_head = l.weights.head().data(),
                              .rms_norm_eps = l.target.rms_norm_eps,
                              .draft_ids = &draft_ids};
  EAGLET_ASSIGN_OR_RETURN(auto model, DraftModel::create(std::move(l.draft), verifier, ttt,
                                                         options.max_seq_len, false, options.device));
  EvaluateReport report;
  const auto bins = plan.epoch(0);
  progress.begin("evaluate", static_cast<std::uint64_t>(plan.report().documents), "documents");
  PackedBatch batch;
  for (const std::vector<std::size_t>& bin : bins) {
    if (interrupted())
      return Status(StatusCode::kInterrupted, "the evaluation was stopped", options.draft_path);
    EAGLET_RETURN_IF_ERROR(fill_batch(*l.store, bin, options.max_seq_len, &batch));
    limit_answers(answer_limits(*l.store, bin, options.answer_tokens), &batch);
    EAGLET_RETURN_IF_ERROR(
        add_acceptance(*model, ttt.ttt_steps, batch, options.temperature > 0 ? &overlap : nullptr, &report));
    for (const std::size_t document : bin) report.document_ids.push_back(l.store->documents()[document].id);
    report.documents += static_cast<std::int64_t>(bin.size());
    progress.update(static_cast<std::uint64_t>(report.documents));
  }
  std::sort(report.document_ids.begin(), report.document_ids.end());  // not in the order they were packed
  finish_acceptance(&report);
  progress.end(fmt::format("{} held-out documents, acceptance length {:.3f}", report.documents,
                           report.acceptance_length));
  return report;
}

}  // namespace eaglet
