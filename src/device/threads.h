#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace eaglet {

/// Threads used by every op and by oneDNN from now on; 0 = all cores this process may use.
void set_num_threads(int threads);
int num_threads();

/// Threads for a rank of a run: those asked for, else its share of the cores it may use (a launcher that
/// binds ranks to cores has shared them out already).
int threads_of_rank(int asked, int ranks_here);

/// Threads that a call from here can use: 1 inside a parallel region.
inline int threads_here() {
  return omp_in_parallel() ? 1 : num_threads();
}

/// Calls body(begin, end) on disjoint ranges that cover [0, n), one contiguous range a thread; ranges of
/// fewer than `grain` items are not split off. The split depends on n, grain and the thread count only.
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, const Body& body) {
  if (n <= 0) return;
  const std::int64_t parts = std::min<std::int64_t>(num_threads(), (n + grain - 1) / grain);
  if (parts <= 1 || omp_in_parallel()) {
    body(std::int64_t{0}, n);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (std::int64_t part = 0; part < parts; ++part) body(n * part / parts, n * (part + 1) / parts);
}

/// Calls body(i, thread) for every i in [0, n); items are handed out one by one, so uneven ones balance.
/// `thread` is in [0, num_threads()). Use only where items do not share results.
template <class Body>
void parallel_items(std::int64_t n, const Body& body) {
#pragma omp parallel for num_threads(num_threads()) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < n; ++i) body(i, omp_get_thread_num());
}

}  // namespace eaglet
