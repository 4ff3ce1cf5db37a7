#pragma once

#include <vector>

#include "batch/packed_batch.h"
#include "store/store.h"
#include "tensor/state_rows.h"

namespace eaglet {

/// Whether a batch's states are left in the store and read chunk by chunk: from 512 MiB of fp32 on.
bool states_stay_in_store(const StoreHeader& header, std::int64_t max_rows);

/// Gives the states of a batch whose states were left in the store, or are in it as they are stored. A
/// document's checksum is checked when it is first touched; pages of the store are given back after each
/// read. Not thread-safe.
class StoreRows : public StateRows {
 public:
  explicit StoreRows(const StoreReader& store) : store_(store) {}
  /// The batch whose rows are asked for from now on; its states are looked at only where they are as stored.
  void use(const PackedBatch& batch);
  Status read_aux(std::int64_t first, std::int64_t n, float* to) override;
  Status read_last(std::int64_t first, std::int64_t n, float* to) override;
  StateForm form() const override;
  Status read_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) override;
  /// Seconds that reads took so far (the log's data_wait_seconds).
  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Place {
    std::int64_t begin = 0;  // first batch row
    std::size_t document = 0;
    bool checked = false;
  };
  /// Calls use(document, range) for these rows.
  template <class Use>
  Status read(std::int64_t first, std::int64_t n, const Use& use);
  void copy_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) const;

  const StoreReader& store_;
  const PackedBatch* stored_ = nullptr;  // the batch, where it has the states itself
  std::vector<Place> places_;            // ascending
  double waited_seconds_ = 0;
};

}  // namespace eaglet
