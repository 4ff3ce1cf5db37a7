#pragma once

#include "base/status.h"

namespace eaglet::apps {

/// sysexits numbers, so that 1 means "failed" and 2 is free for verdicts (docs/exit-codes.md).
int exit_code(const Status& status);

/// The kind of failure that an exit code of eaglet stands for; kNumeric for 1, kUnavailable where a
/// signal ended it (128 + signal), kInternal for what is none of ours.
StatusCode kind_of_exit(int code);

}  // namespace eaglet::apps
