#include "apps/exit_code.h"

#include "base/interrupt.h"

namespace eaglet::apps {

int exit_code(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kUsage:
      return 64;
    case StatusCode::kDataLoss:
      return 65;
    case StatusCode::kNotFound:
      return 66;
    case StatusCode::kUnavailable:
      return 69;
    case StatusCode::kInternal:
      return 70;
    case StatusCode::kNoSpace:
      return 73;
    case StatusCode::kBusy:
      return 75;
    case StatusCode::kPermission:
      return 77;
    case StatusCode::kConfig:
      return 78;
    case StatusCode::kInterrupted:
      return 128 + (interrupt_signal() != 0 ? interrupt_signal() : 2);
    case StatusCode::kInvalidArgument:
    case StatusCode::kNumeric:
      return 1;
  }
  return 70;
}

StatusCode kind_of_exit(int code) {
  for (const StatusCode kind :
       {StatusCode::kOk, StatusCode::kUsage, StatusCode::kDataLoss, StatusCode::kNotFound,
        StatusCode::kUnavailable, StatusCode::kNoSpace, StatusCode::kBusy, StatusCode::kPermission,
        StatusCode::kConfig, StatusCode::kNumeric})
    if (exit_code(Status(kind, "")) == code) return kind;
  return code > 128 ? StatusCode::kUnavailable : StatusCode::kInternal;
}

}  // namespace eaglet::apps
