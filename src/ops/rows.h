#pragma once

#include <cstdint>

namespace eaglet {

/// to [n, width] = rows index[i] of from. `index` nullptr means the identity.
void gather_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index, float* to);
/// Row index[i] of `to` += row i of `from`; the indices must be distinct. `index` nullptr means the identity.
void scatter_add_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                      float* to);
/// The same where rows may repeat (tokens of a batch); `to` has at most 2^31 rows. Same bits for any thread
/// count.
void scatter_add_repeated_rows(std::int64_t n, std::int64_t width, const float* from,
                               const std::int32_t* index, float* to);
/// to = 0
void zero_rows(std::int64_t n, std::int64_t width, float* to);

}  // namespace eaglet
