#pragma once

#include <cstdint>
#include <vector>

#include "apps/bench_shapes.h"
#include "tensor/state_rows.h"

namespace eaglet::apps {

/// Synthetic rows: random states and tokens, `documents` equal documents, the first part of each
/// unsupervised.
struct SyntheticBatch {
  std::vector<float> aux, last;  // of at most RepeatedRows::kRows rows
  std::vector<std::int32_t> ids, documents, positions;
  std::vector<std::uint8_t> mask;
  std::int64_t supervised = 0;
};
SyntheticBatch make_batch(const BenchShape& shape);
/// Normal numbers that follow from `stream`.
void fill_normal(std::int64_t n, double deviation, std::uint64_t stream, std::vector<float>* values);

/// States of a long batch: a table that begins again and again, so that what is measured is the training's
/// memory and not that of made-up states. For a device bf16, as a store's would be.
class RepeatedRows : public StateRows {
 public:
  static constexpr std::int64_t kRows = 8192;
  /// Of a batch of at most kRows rows each state is its own.
  RepeatedRows(const std::vector<float>& aux, const std::vector<float>& last, std::int64_t rows,
               bool as_bf16);
  Status read_aux(std::int64_t first, std::int64_t n, float* to) override;
  Status read_last(std::int64_t first, std::int64_t n, float* to) override;
  StateForm form() const override { return as_bf16_ ? StateForm::kBF16 : StateForm::kF32; }
  Status read_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) override;

 private:
  const std::vector<float>&aux_, &last_;
  std::vector<std::uint16_t> aux_bits_, last_bits_;
  const std::int64_t rows_;
  const bool as_bf16_;
};

}  // namespace eaglet::apps
