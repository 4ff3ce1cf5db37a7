#include "extract/extract_work.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files.h"
#include "formats/layer_ids.h"
#include "formats/length_limit.h"
#include "store/forecast.h"
#include "store/state_codec.h"

namespace eaglet {
namespace {

Status check_vocabulary(const Conversation& document, const TargetFacts& facts, const std::string& path) {
  for (const std::int32_t token : document.input_ids)
    if (token < 0 || token >= facts.vocab)
      return Status(StatusCode::kConfig,
                    fmt::format("document {} has token id {}, the target's vocabulary has {}", document.id,
                                token, facts.vocab),
                    path, "these are conversations of another model: generate them with this target");
  return Status();
}

/// A store begun under another limit, or from other answers, is not gone on with: its documents would differ.
Status check_same_cut(Conversation document, std::int64_t limit, std::int64_t stored_tokens,
                      const std::string& store) {
  const LimitResult cut = cut_to_limit(limit, &document);
  const bool kept = cut == LimitResult::kCut || cut == LimitResult::kWhole;
  const std::int64_t tokens = kept ? static_cast<std::int64_t>(document.input_ids.size()) : 0;
  if (tokens == stored_tokens) return {};
  return Status(
      StatusCode::kConfig,
      fmt::format("document {} has {} tokens in the store and would have {} now: the store was begun "
                  "with another --max-seq-len or from other conversations",
                  document.id, stored_tokens, tokens),
      store, "give the --max-seq-len it was begun with, or extract into a new directory");
}

DocumentSize document_size(const Conversation& document) {
  const KeptRows kept = kept_rows(document.loss_mask, true);
  return {static_cast<std::int64_t>(document.input_ids.size()), static_cast<std::int64_t>(document.id.size()),
          kept.aux_rows, kept.last_rows()};
}

}  // namespace

StoreHeader header_for(const TargetFacts& facts, std::vector<std::int32_t> layers,
                       const StoreWriterOptions& store) {
  StoreHeader header;
  header.target_identity = facts.identity;
  header.target_name = facts.name;
  header.hidden = facts.hidden;
  header.target_layers = facts.num_layers;
  header.aux_layers = std::move(layers);
  if (store.encoding == StateEncoding::kFp8) header.dtype = Dtype::kF8E4M3;
  return header;
}

std::int64_t length_limit(const ExtractOptions& options, const TargetFacts& facts) {
  const std::int64_t context = facts.max_position_embeddings;
  if (options.max_seq_len == 0 || context == 0) return std::max(options.max_seq_len, context);
  return std::min(options.max_seq_len, context);
}

Result<ExtractWork> plan_work(std::vector<Conversation> conversations, const ExtractOptions& options,
                              const TargetFacts& facts, const StoreWriter* begun, std::int64_t server_limit) {
  std::int64_t limit = length_limit(options, facts);
  if (server_limit > 0) limit = limit > 0 ? std::min(limit, server_limit) : server_limit;
  ExtractWork work;
  for (Conversation& document : conversations) {
    if (const std::int64_t stored = begun == nullptr ? 0 : begun->tokens_of(document.id); stored > 0) {
      EAGLET_RETURN_IF_ERROR(check_same_cut(std::move(document), limit, stored, options.store_path));
      ++work.already_done;
      continue;
    }
    EAGLET_RETURN_IF_ERROR(check_vocabulary(document, facts, options.conversations_path));
    const std::int64_t needed = least_useful_limit(document);
    switch (cut_to_limit(limit, &document)) {
      case LimitResult::kNothingSupervised:
        ++work.skipped_empty;
        continue;
      case LimitResult::kNothingLeft:
        ++work.cut_away;
        if (work.least_useful_limit == 0 || needed < work.least_useful_limit)
          work.least_useful_limit = needed;
        continue;
      case LimitResult::kCut:
        ++work.cut;
        break;
      case LimitResult::kWhole:
        break;
    }
    work.longest = std::max(work.longest, static_cast<std::int64_t>(document.input_ids.size()));
    work.documents.push_back(std::move(document));
  }
  return work;
}

Status nothing_to_learn(const ExtractWork& work, const ExtractOptions& options, std::uint64_t rows) {
  const std::string& where = options.conversations_path;
  if (work.cut_away == 0)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("none of the {} conversations has a supervised token", rows), where,
                  "generate answers first, or eaglet prepare conversations that have them");
  return Status(StatusCode::kInvalidArgument,
                fmt::format("no supervised token is left in any of the {} conversations under the limit of "
                            "{} tokens ({} cut by the length limit, {} nothing supervised)",
                            rows, options.max_seq_len, work.cut_away, work.skipped_empty),
                where, fmt::format("give --max-seq-len {} or more", work.least_useful_limit));
}

Status tell_forecast(const ExtractWork& work, const ExtractOptions& options, const StoreWriterOptions& store,
                     const StoreHeader& header, Progress& progress) {
  std::vector<DocumentSize> sizes;
  for (const Conversation& document : work.documents) sizes.push_back(document_size(document));
  const Forecast forecast = forecast_store(header, sizes, store);
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, free_disk_bytes(options.store_path));
  EAGLET_RETURN_IF_ERROR(check_forecast(forecast, free_bytes, options.store_path, options.force));
  progress.note("captured: " + describe_layer_ids(header.aux_layers, header.target_layers) +
                "; and the last state");
  progress.note(fmt::format("states of {} documents, {} tokens: {}", forecast.documents, forecast.tokens,
                            forecast_text(forecast, free_bytes)));
  return Status();
}

void tell_work(const ExtractWork& work, Progress& progress) {
  if (work.skipped_empty > 0)
    progress.note(fmt::format("{} conversations left out: nothing supervised", work.skipped_empty));
  if (work.cut_away > 0)
    progress.note(fmt::format("{} conversations left out: cut by the length limit", work.cut_away));
  if (work.cut > 0) progress.note(fmt::format("{} conversations are cut to the length limit", work.cut));
}

Status add_totals(const ExtractOptions& options, ExtractReport* report) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::open(options.store_path));
  report->documents = static_cast<std::int64_t>(store->documents().size());
  report->state_bytes = store->bytes();
  for (const StoredDocument& document : store->documents()) {
    report->tokens += document.tokens;
    report->supervised_tokens += document.supervised_tokens;
  }
  return Status();
}

}  // namespace eaglet
