#include "device/threads.h"

#include <sched.h>

#include <thread>

namespace eaglet {
namespace {
int configured_threads = 0;

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, omp_get_num_procs());
}
}  // namespace

void set_num_threads(int threads) {
  configured_threads = threads > 0 ? threads : usable_cores();
  omp_set_num_threads(configured_threads);
}

int num_threads() {
  if (configured_threads == 0) set_num_threads(0);
  return configured_threads;
}

int threads_of_rank(int asked, int ranks_here) {
  if (asked > 0 || ranks_here == 1) return asked;
  set_num_threads(0);
  const int usable = num_threads();
  const bool bound = usable < static_cast<int>(std::thread::hardware_concurrency());
  return bound ? usable : std::max(1, usable / ranks_here);
}

}  // namespace eaglet
