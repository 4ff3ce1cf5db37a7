#pragma once

// For the tests of attention: small batches with documents, windows and own keys, and the reference's answer.

#include <cstdint>
#include <vector>

#include "ops/attention.h"
#include "ops/attention_ref.h"
#include "ops/ops_test_util.h"

namespace eaglet::test {

// Two documents (of `lengths` keys), every second row a query, k own steps whose arrays are in another order
// than the queries.
struct AttentionCase {
  AttentionShape shape;
  std::vector<std::int32_t> lengths;
  std::int64_t own_steps = 0;
  std::vector<AttentionSpan> spans;
  std::vector<std::int32_t> key_of_query;
  std::vector<std::vector<std::int32_t>> own_index;
  std::vector<float> queries, keys0, values0;
  std::vector<std::vector<float>> own_keys, own_values;
  std::int64_t total_keys = 0;
};

inline AttentionCase make_attention_case(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                         std::int64_t window, std::vector<std::int32_t> lengths,
                                         std::int64_t own_steps, std::int32_t query_distance = 2) {
  AttentionCase c;
  c.shape = {heads, kv_heads, head_dim, window};
  c.lengths = lengths;
  c.own_steps = own_steps;
  for (const std::int32_t length : lengths) {
    const auto first_query = static_cast<std::int32_t>(c.key_of_query.size());
    const auto first_key = static_cast<std::int32_t>(c.total_keys);
    for (std::int32_t i = length == 1 ? 0 : 1; i < length; i += query_distance)
      c.key_of_query.push_back(first_key + i);
    c.total_keys += length;
    c.spans.push_back({first_query, static_cast<std::int32_t>(c.key_of_query.size()), first_key,
                       static_cast<std::int32_t>(c.total_keys)});
  }
  const auto n = static_cast<std::int64_t>(c.key_of_query.size());
  c.queries = random_floats(n * heads * head_dim, 1);
  c.keys0 = random_floats(c.total_keys * kv_heads * head_dim, 2);
  c.values0 = random_floats(c.total_keys * kv_heads * head_dim, 3);
  for (std::int64_t j = 0; j < own_steps; ++j) {
    std::vector<std::int32_t> index;
    for (std::int64_t i = 0; i < n; ++i)
      index.push_back(static_cast<std::int32_t>(n + j - i));  // reversed, one unused
    c.own_index.push_back(index);
    c.own_keys.push_back(
        random_floats((n + j + 1) * kv_heads * head_dim, 10 + static_cast<std::uint64_t>(j)));
    c.own_values.push_back(
        random_floats((n + j + 1) * kv_heads * head_dim, 20 + static_cast<std::uint64_t>(j)));
  }
  return c;
}

// Everything in one flat vector, so that one complex step walks over every input.
struct AttentionLayout {
  std::vector<std::int64_t> offset;  // queries, keys0, values0, own keys..., own values...
};

inline std::vector<float> flatten(const AttentionCase& c, AttentionLayout* layout) {
  std::vector<float> all;
  const auto add = [&](const std::vector<float>& part) {
    layout->offset.push_back(static_cast<std::int64_t>(all.size()));
    all.insert(all.end(), part.begin(), part.end());
  };
  add(c.queries);
  add(c.keys0);
  add(c.values0);
  for (const auto& part : c.own_keys) add(part);
  for (const auto& part : c.own_values) add(part);
  layout->offset.push_back(static_cast<std::int64_t>(all.size()));
  return all;
}

template <class T>
std::vector<T> attention_reference(const AttentionCase& c, const AttentionLayout& layout,
                                   const std::vector<T>& all) {
  const std::int64_t D = c.shape.head_dim, N = c.shape.num_heads, Kv = c.shape.num_kv_heads;
  const auto vector_at = [&](std::size_t part, std::int64_t row, std::int64_t heads, std::int64_t head) {
    const auto begin = all.begin() + layout.offset[part] + (row * heads + head) * D;
    return std::vector<T>(begin, begin + D);
  };
  std::vector<T> out;
  for (const AttentionSpan& span : c.spans)
    for (std::int32_t q = span.query_begin; q < span.query_end; ++q)
      for (std::int64_t head = 0; head < N; ++head) {
        const std::int64_t kv_head = head / (N / Kv), last = c.key_of_query[static_cast<std::size_t>(q)];
        std::vector<std::vector<T>> keys, values;
        for (std::int64_t j = span.key_begin; j <= last; ++j) {
          if (c.shape.window > 0 && j <= last - c.shape.window) continue;
          keys.push_back(vector_at(1, j, Kv, kv_head));
          values.push_back(vector_at(2, j, Kv, kv_head));
        }
        for (std::size_t j = 0; j < static_cast<std::size_t>(c.own_steps); ++j) {
          const std::int64_t row = c.own_index[j][static_cast<std::size_t>(q)];
          keys.push_back(vector_at(3 + j, row, Kv, kv_head));
          values.push_back(vector_at(3 + static_cast<std::size_t>(c.own_steps) + j, row, Kv, kv_head));
        }
        const std::vector<T> row = ref::attention_row(vector_at(0, q, N, head), keys, values);
        out.insert(out.end(), row.begin(), row.end());
      }
  return out;
}

}  // namespace eaglet::test
