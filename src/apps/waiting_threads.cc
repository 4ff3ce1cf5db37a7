#include "apps/waiting_threads.h"

#include <unistd.h>

#include <cstdlib>

namespace eaglet::apps {

void let_waiting_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "10000", 1) != 0) return;
  execv("/proc/self/exe", argv);  // comes back only when it failed; then we go on as we are
}

}  // namespace eaglet::apps
