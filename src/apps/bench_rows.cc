#include "apps/bench_rows.h"

#include <algorithm>

#include "base/rng.h"
#include "tensor/dtype.h"

namespace eaglet::apps {
namespace {

template <class T>
Status copy(const std::vector<T>& table, std::int64_t rows, std::int64_t first, std::int64_t n, T* to) {
  const std::int64_t width = static_cast<std::int64_t>(table.size()) / rows;
  for (std::int64_t i = 0; i < n; ++i)
    std::copy_n(table.begin() + (first + i) % rows * width, width, to + i * width);
  return {};
}

void round(const std::vector<float>& from, std::vector<std::uint16_t>* to) {
  to->reserve(from.size());
  for (const float value : from) to->push_back(f32_to_bf16(value));
}

}  // namespace

void fill_normal(std::int64_t n, double deviation, std::uint64_t stream, std::vector<float>* values) {
  Rng rng(1, stream);
  values->resize(static_cast<std::size_t>(n));
  for (float& v : *values) v = static_cast<float>(deviation * rng.normal());
}

SyntheticBatch make_batch(const BenchShape& shape) {
  SyntheticBatch b;
  const DraftConfig& c = shape.config;
  const std::int64_t state_rows = std::min(shape.rows, RepeatedRows::kRows);
  fill_normal(state_rows * c.num_aux() * c.target_hidden, 1.0, 1, &b.aux);
  fill_normal(state_rows * c.target_hidden, 1.0, 2, &b.last);
  Rng rng(1, 3);
  const std::int64_t length = shape.rows / shape.documents;
  for (std::int64_t p = 0; p < shape.rows; ++p) {
    const std::int64_t tokens = shape.small_tables ? shape.rows : c.vocab;
    const std::int64_t document = std::min(p / length, shape.documents - 1), row = p - document * length;
    b.ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(tokens))));
    b.documents.push_back(static_cast<std::int32_t>(document));
    b.positions.push_back(static_cast<std::int32_t>(1 + row));
    const bool supervised =
        row >= static_cast<std::int64_t>(static_cast<double>(length) * shape.unsupervised_share);
    b.mask.push_back(supervised ? 1 : 0);
    b.supervised += supervised ? 1 : 0;
  }
  return b;
}

RepeatedRows::RepeatedRows(const std::vector<float>& aux, const std::vector<float>& last, std::int64_t rows,
                           bool as_bf16)
    : aux_(aux), last_(last), rows_(std::min(rows, kRows)), as_bf16_(as_bf16) {
  if (!as_bf16) return;
  round(aux, &aux_bits_);
  round(last, &last_bits_);
}

Status RepeatedRows::read_aux(std::int64_t first, std::int64_t n, float* to) {
  return copy(aux_, rows_, first, n, to);
}

Status RepeatedRows::read_last(std::int64_t first, std::int64_t n, float* to) {
  return copy(last_, rows_, first, n, to);
}

Status RepeatedRows::read_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) {
  return copy(captured ? aux_bits_ : last_bits_, rows_, first, n, static_cast<std::uint16_t*>(to.numbers));
}

}  // namespace eaglet::apps
