#pragma once

#include "base/status.h"

namespace eaglet::apps {

/// sysexits numbers, so that 1 means "failed" and 2 is free for verdicts (docs/exit-codes.md).
int exit_code(const Status& status);

}  // namespace eaglet::apps
