#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "batch/packed_batch.h"
#include "store/store.h"

namespace eaglet {

struct PackingOptions {
  std::int64_t max_seq_len = 2048;  // rows of a batch, and the most tokens of a document: longer ones are cut
  std::uint64_t seed = 0;
  bool shuffle = true;
};

/// What packing did with the documents; printed before the first step.
struct PackingReport {
  std::int64_t documents = 0;  // used
  std::int64_t batches = 0;
  std::int64_t real_tokens = 0;  // rows over all batches of one epoch
  std::int64_t supervised_tokens = 0;
  std::int64_t cut_documents = 0;  // longer than max_seq_len: cut
  std::int64_t dropped_empty = 0;  // shorter than 2 tokens
  std::int64_t dropped_unsupervised =
      0;  // no supervised token at all (the first token of a document never is a row)
  std::int64_t dropped_beyond_limit = 0;  // supervised only beyond max_seq_len
  double fill_ratio = 0;                  // real_tokens / (batches * max_seq_len)
};

/// Which documents go into which batch: best fit, decreasing. The set of batches depends on lengths and
/// max_seq_len only; their order and the order inside is a pure function of (seed, epoch).
/// `subset` lists store indices to use (training rows or held-out rows).
class PackPlan {
 public:
  /// kInvalidArgument when max_seq_len is below 2, or when nothing to learn is left (with the counts and the
  /// limit that would help).
  static Result<PackPlan> make(const StoreReader& store, const std::vector<std::size_t>& subset,
                               const PackingOptions& options);
  const PackingReport& report() const { return report_; }
  /// Store indices of each batch of an epoch, in training order.
  std::vector<std::vector<std::size_t>> epoch(std::int64_t epoch) const;

 private:
  PackingOptions options_;
  PackingReport report_;
  std::vector<std::vector<std::size_t>> bins_;
};

/// The part of an epoch's batches that one of several ranks trains on: numbers rank, rank + ranks, ...
struct BatchShare {
  std::int64_t rank = 0, ranks = 1;
};

/// Whether a batch's states are copied into it as fp32, left in the store, or copied as they are stored
/// (StoreRows gives both; only a store with a stored_form() has the last).
enum class BatchStates { kLoaded, kInStore, kStored };

/// Fills batches ahead on `num_workers` threads, in order. The last partial batch is kept. Batches keep their
/// memory between uses (recycle()); at most 2 * num_workers are filled ahead. Destroying it mid-flight is
/// fine.
class BatchLoader {
 public:
  /// Starts at batch `first_batch` of epoch `first_epoch` (the number of batches: the next epoch's first) and
  /// goes on for ever, epoch after epoch, until destroyed. Batches are padded to max_seq_len rows. `store`
  /// must outlive it. With a share, `first_batch` is where the ranks together stand (a multiple of `ranks`),
  /// and only this rank's batches come; every epoch begins anew at its number `rank`.
  static Result<std::unique_ptr<BatchLoader>> start(const StoreReader& store, const PackPlan& plan,
                                                    std::int64_t max_seq_len, int num_workers,
                                                    std::int64_t first_epoch, std::int64_t first_batch,
                                                    const BatchShare& share = {},
                                                    BatchStates states = BatchStates::kLoaded);
  virtual ~BatchLoader() = default;
  /// The next batch; blocks until it is ready. A document that fails its checksum comes back as an error in
  /// place of its batch; the batches after it can still be had.
  virtual Result<std::unique_ptr<PackedBatch>> next() = 0;
  virtual void recycle(std::unique_ptr<PackedBatch> batch) = 0;
  /// Seconds next() has waited so far (the log's data_wait_seconds).
  virtual double waited_seconds() const = 0;
};

/// Packs the given documents, in order, into one batch. max_rows > 0: exactly max_rows rows, documents cut to
/// max_rows tokens each, the rest padding (kInvalidArgument when they need more rows). max_rows 0: as many
/// rows as they need.
Status fill_batch(const StoreReader& store, const std::vector<std::size_t>& documents, std::int64_t max_rows,
                  PackedBatch* batch, BatchStates states = BatchStates::kLoaded);

}  // namespace eaglet
