#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "batch/loader.h"

namespace eaglet {
namespace {

/// A document that will be trained on: `rows` after cutting and the data shift.
struct Usable {
  std::size_t document = 0;
  std::int64_t rows = 0;
};

/// The supervised tokens that can become rows (the first token of a document never does): how many lie below
/// `kept_tokens`, and the index of the first one, or -1.
struct SupervisedRows {
  std::int64_t kept = 0, first = -1;
};
Result<SupervisedRows> supervised_rows(const StoreReader& store, std::size_t document,
                                       std::int64_t kept_tokens) {
  EAGLET_ASSIGN_OR_RETURN(const DocumentStates tokens, store.read_tokens(document));
  const auto& mask = tokens.loss_mask;
  const auto first = std::find(mask.begin() + 1, mask.end(), 1);
  return SupervisedRows{std::count(mask.begin() + 1, mask.begin() + kept_tokens, 1),
                        first == mask.end() ? -1 : first - mask.begin()};
}

/// What choosing learnt beside the report: for the error when nothing is left.
struct Hints {
  std::int64_t smallest_useful_limit = std::numeric_limits<std::int64_t>::max();
};

Result<std::vector<Usable>> usable_documents(const StoreReader& store, const std::vector<std::size_t>& subset,
                                             std::int64_t max_seq_len, PackingReport* report, Hints* hints) {
  std::vector<Usable> usable;
  for (const std::size_t document : subset) {
    if (document >= store.documents().size())
      return Status(StatusCode::kInternal,
                    fmt::format("document {} of {} asked for", document, store.documents().size()));
    const StoredDocument& facts = store.documents()[document];
    if (facts.tokens < 2) {
      ++report->dropped_empty;
      continue;
    }
    if (facts.supervised_tokens == 0) {
      ++report->dropped_unsupervised;
      continue;
    }
    const std::int64_t kept = std::min(facts.tokens, max_seq_len);
    SupervisedRows supervised{facts.supervised_tokens, facts.first_supervised};
    if (kept < facts.tokens ||
        facts.first_supervised == 0) {  // only then the mask itself has to be looked at
      EAGLET_ASSIGN_OR_RETURN(supervised, supervised_rows(store, document, kept));
    }
    if (supervised.first < 0) {
      ++report->dropped_unsupervised;
      continue;
    }
    if (supervised.kept == 0) {
      ++report->dropped_beyond_limit;
      hints->smallest_useful_limit = std::min(hints->smallest_useful_limit, supervised.first + 1);
      continue;
    }
    if (kept < facts.tokens) ++report->cut_documents;
    ++report->documents;
    report->real_tokens += kept - 1;
    report->supervised_tokens += supervised.kept;
    usable.push_back({document, kept - 1});
  }
  return usable;
}

Status nothing_left(const PackingReport& report, const Hints& hints, std::int64_t max_seq_len,
                    std::size_t documents) {
  const std::string what = fmt::format(
      "no supervised token is left under --max-seq-len {}: of {} documents {} are supervised only beyond the "
      "limit, {} have "
      "no supervised token, {} are shorter than 2 tokens",
      max_seq_len, documents, report.dropped_beyond_limit, report.dropped_unsupervised, report.dropped_empty);
  const bool would_help = report.dropped_beyond_limit > 0;
  return Status(
      StatusCode::kInvalidArgument, what, "",
      would_help ? fmt::format("use --max-seq-len {} or more", hints.smallest_useful_limit)
                 : "check the conversations the store was made from: their loss_mask marks nothing to learn");
}

/// Best fit, decreasing: each document, longest first, goes into the fullest batch it still fits in.
std::vector<std::vector<std::size_t>> best_fit_decreasing(std::vector<Usable> documents,
                                                          std::int64_t rows_per_batch) {
  std::stable_sort(documents.begin(), documents.end(),
                   [](const Usable& a, const Usable& b) { return a.rows > b.rows; });
  std::vector<std::vector<std::size_t>> batches;
  std::set<std::pair<std::int64_t, std::size_t>>
      room;  // (free rows, batch): ordered, so ties are settled for good
  for (const Usable& document : documents) {
    std::int64_t free_rows = rows_per_batch;
    std::size_t batch = batches.size();
    if (const auto found = room.lower_bound({document.rows, 0}); found != room.end()) {
      std::tie(free_rows, batch) = *found;
      room.erase(found);
    } else {
      batches.emplace_back();
    }
    batches[batch].push_back(document.document);
    if (free_rows > document.rows) room.insert({free_rows - document.rows, batch});
  }
  return batches;
}

}  // namespace

Result<PackPlan> PackPlan::make(const StoreReader& store, const std::vector<std::size_t>& subset,
                                const PackingOptions& options) {
  if (options.max_seq_len < 2)
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("--max-seq-len {} leaves nothing to learn: a token is learnt from the one before it",
                    options.max_seq_len),
        "", "use 2 or more (2048 is usual)");
  if (subset.empty())
    return Status(StatusCode::kInvalidArgument, "there are no documents to train on", "",
                  "extract some conversations first");
  PackPlan plan;
  plan.options_ = options;
  Hints hints;
  EAGLET_ASSIGN_OR_RETURN(std::vector<Usable> usable,
                          usable_documents(store, subset, options.max_seq_len, &plan.report_, &hints));
  if (usable.empty()) return nothing_left(plan.report_, hints, options.max_seq_len, subset.size());
  plan.bins_ = best_fit_decreasing(std::move(usable), options.max_seq_len);
  plan.report_.batches = static_cast<std::int64_t>(plan.bins_.size());
  plan.report_.fill_ratio =
      static_cast<double>(plan.report_.real_tokens) /
      (static_cast<double>(plan.report_.batches) * static_cast<double>(options.max_seq_len));
  return plan;
}

std::vector<std::vector<std::size_t>> PackPlan::epoch(std::int64_t epoch) const {
  std::vector<std::vector<std::size_t>> batches = bins_;
  if (!options_.shuffle) return batches;
  Rng rng(options_.seed, static_cast<std::uint64_t>(epoch));
  rng.shuffle(batches);
  for (std::vector<std::size_t>& batch : batches) rng.shuffle(batch);
  return batches;
}

}  // namespace eaglet
