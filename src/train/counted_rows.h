#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "store/store.h"

namespace eaglet {

/// How many rows of each document count at each drafting step, known from ids and masks alone. So an update
/// over several batches or ranks knows what its sums are divided by before the first batch is loaded, and no
/// rank has to ask another.
class CountedRows {
 public:
  /// Reads the tokens of the given documents, as they are cut to max_seq_len. kInterrupted after a signal.
  static Result<CountedRows> make(const StoreReader& store, const std::vector<std::size_t>& documents,
                                  std::int64_t max_seq_len, int ttt_steps);
  /// Adds those of a batch to `counted` [K].
  void add(const std::vector<std::size_t>& documents, std::vector<double>* counted) const;

 private:
  std::size_t steps_ = 0;
  std::vector<float> by_document_;  // [documents of the store, K]; exact: a document is far below 2^24 tokens
};

}  // namespace eaglet
