#include "train/run_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "formats/tokenizer_hash.h"
#include "train/draft_setup.h"
#include "vocab/draft_vocab.h"
#include "vocab/vocab_files.h"

namespace eaglet {
namespace {

/// A map that was made for this tokenizer and these documents (all of the store, or those that are trained
/// on).
Result<DraftVocab> given_vocab(const RunStartMaker& in, const std::vector<std::int64_t>& counts,
                               double* covered) {
  EAGLET_ASSIGN_OR_RETURN(VocabMap map, read_vocab_map(in.options.vocab_map, in.target.vocab));
  EAGLET_ASSIGN_OR_RETURN(const std::string tokenizer, tokenizer_hash(in.options.model_path));
  std::vector<std::size_t> all(in.data.store->documents().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  EAGLET_ASSIGN_OR_RETURN(const auto of_all, count_supervised(*in.data.store, all, in.target.vocab));
  const std::string trained = hash_counts(counts);
  const bool same = map.counts_hash == trained || map.counts_hash == hash_counts(of_all);
  const std::string stale = stale_reason(map, in.target.vocab, in.options.draft_vocab_size, tokenizer,
                                         same ? map.counts_hash : trained);
  if (!stale.empty())
    return Status(StatusCode::kInvalidArgument, "the vocabulary map must not be used: " + stale,
                  in.options.vocab_map,
                  "make one for this store with eaglet vocab --states, or leave --vocab-map out");
  std::sort(map.vocab.target_ids.begin(), map.vocab.target_ids.end());
  *covered = covered_share(map.vocab, counts);
  return map.vocab;
}

Result<DraftVocab> choose_vocab(const RunStartMaker& in, double* covered) {
  if (in.options.draft_vocab_size > in.target.vocab)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a draft vocabulary of {} is larger than the target's of {}",
                              in.options.draft_vocab_size, in.target.vocab),
                  "--draft-vocab-size",
                  fmt::format("give {} or less; 0 is the whole vocabulary", in.target.vocab));
  EAGLET_ASSIGN_OR_RETURN(const auto counts,
                          count_supervised(*in.data.store, in.data.training, in.target.vocab));
  if (!in.options.vocab_map.empty()) return given_vocab(in, counts, covered);
  const std::int64_t size = in.options.draft_vocab_size > 0 ? in.options.draft_vocab_size : in.target.vocab;
  EAGLET_ASSIGN_OR_RETURN(DraftVocab vocab,
                          choose_draft_vocab(counts, in.target.special_ids, in.target.end_ids, size));
  *covered = covered_share(vocab, counts);
  return vocab;
}

// Without trainer_state.json the place in the data still follows from the step: batches are a function of the
// seed.
Status reconstruct_state(const RunStartMaker& in, const FoundCheckpoint& checkpoint,
                         std::int64_t batches_per_update, RunStart* start) {
  TrainerState& state = start->state;
  state.batches_per_epoch = in.data.training_plan.report().batches;
  state.step = checkpoint.step;
  const std::int64_t group = batches_per_update;
  const std::int64_t updates = (state.batches_per_epoch + group - 1) / group;
  state.epoch = (checkpoint.step + 1) / updates;
  state.next_batch = (checkpoint.step + 1) % updates * group;
  EAGLET_ASSIGN_OR_RETURN(const auto counts,
                          count_supervised(*in.data.store, in.data.training, in.target.vocab));
  state.covered_share = covered_share(start->draft.vocab, counts);
  in.progress.note(
      "warning: the settings of the earlier run are not known; they are taken to be the ones given now");
  return {};
}

}  // namespace

Result<RunStart> RunStartMaker::anew() const {
  RunStart start;
  TrainerState& state = start.state;
  state.batches_per_epoch = data.training_plan.report().batches;
  if (!options.from.empty()) {
    std::vector<std::string> notes;
    EAGLET_ASSIGN_OR_RETURN(start.draft, warm_start(options, target, weights, data.store->header(), &notes));
    for (const std::string& note : notes) progress.note(note);
    if (options.train_embeddings)
      EAGLET_RETURN_IF_ERROR(train_embeddings(weights.embed_tokens, &start.draft));
    EAGLET_ASSIGN_OR_RETURN(const auto counts, count_supervised(*data.store, data.training, target.vocab));
    state.covered_share = covered_share(start.draft.vocab, counts);
    return start;
  }
  EAGLET_ASSIGN_OR_RETURN(const DraftVocab vocab, choose_vocab(*this, &state.covered_share));
  const DraftConfig config = draft_config_for(options, target, data.store->header(), vocab.size());
  EAGLET_RETURN_IF_ERROR(check_draft_config(config));
  if (config.hidden != target.hidden && (!options.train_embeddings || !options.train_head))
    return Status(
        StatusCode::kUsage,
        fmt::format("a draft of width {} cannot use the embeddings and the head of a target of width {}",
                    config.hidden, target.hidden),
        "--hidden-size", "give --train-embeddings and --train-head with it");
  start.draft = new_draft(config, vocab, options.train_head, weights.head(), weights.final_norm, options.seed,
                          options.train_embeddings ? &weights.embed_tokens : nullptr);
  return start;
}

Result<RunStart> RunStartMaker::from_checkpoint(const FoundCheckpoint& checkpoint,
                                                std::int64_t batches_per_update) const {
  RunStart start;
  LoadReport ignored;  // every tensor of our own checkpoint is loaded or it is an error
  EAGLET_ASSIGN_OR_RETURN(start.draft, read_draft(checkpoint.path, options.train_head, &ignored));
  if (options.train_embeddings) EAGLET_RETURN_IF_ERROR(train_embeddings(weights.embed_tokens, &start.draft));
  if (!checkpoint.check.trainer_state) {
    EAGLET_RETURN_IF_ERROR(reconstruct_state(*this, checkpoint, batches_per_update, &start));
    return start;
  }
  const std::string path = checkpoint.path + "/" + kTrainerStateFile;
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  Result<TrainerState> state = trainer_state_from_json(json);
  if (!state.ok()) return state.status().at(path);
  start.state = std::move(*state);
  start.has_settings = true;
  return start;
}

}  // namespace eaglet
