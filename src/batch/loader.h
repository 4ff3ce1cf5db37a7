#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "batch/packed_batch.h"
#include "store/store.h"

namespace eaglet {

struct PackingOptions {
  std::int64_t max_seq_len = 2048;   // rows of a batch
  std::uint64_t seed = 0;
  bool shuffle = true;
};

/// What packing did with the documents; printed before the first step.
struct PackingReport {
  std::int64_t documents = 0;        // used
  std::int64_t batches = 0;
  std::int64_t real_tokens = 0;      // rows over all batches of one epoch
  std::int64_t supervised_tokens = 0;
  std::int64_t cut_documents = 0;    // longer than max_seq_len: cut
  std::int64_t dropped_empty = 0;    // shorter than 2 tokens
  std::int64_t dropped_unsupervised = 0;  // no supervised row left (after cutting)
  double fill_ratio = 0;             // real_tokens / (batches * max_seq_len)
};

/// Which documents go into which batch: best fit, decreasing. The set of batches depends on lengths and
/// max_seq_len only; their order and the order inside is a pure function of (seed, epoch).
/// `subset` lists store indices to use (training rows or held-out rows).
class PackPlan {
 public:
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

/// Fills batches ahead on `num_workers` threads, in order. The last partial batch is kept. Batches keep their memory
/// between uses (recycle()).
class BatchLoader {
 public:
  /// Starts at batch `first_batch` of epoch `first_epoch` and goes on for ever (epoch after epoch) until destroyed.
  static Result<std::unique_ptr<BatchLoader>> start(const StoreReader& store, const PackPlan& plan,
                                                    std::int64_t max_seq_len, int num_workers,
                                                    std::int64_t first_epoch, std::int64_t first_batch);
  virtual ~BatchLoader() = default;
  /// The next batch; blocks until it is ready. A document that fails its checksum comes back as an error.
  virtual Result<std::unique_ptr<PackedBatch>> next() = 0;
  virtual void recycle(std::unique_ptr<PackedBatch> batch) = 0;
  /// Seconds next() has waited so far (the log's data_wait_seconds).
  virtual double waited_seconds() const = 0;
};

/// Packs the given documents into one batch of exactly as many rows as they need (no padding unless rows > 0 asks).
Status fill_batch(const StoreReader& store, const std::vector<std::size_t>& documents, std::int64_t max_rows,
                  PackedBatch* batch);

}  // namespace eaglet
