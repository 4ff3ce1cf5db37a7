#include "device/op_times.h"

namespace eaglet {

const char* op_group_name(OpGroup group) {
  constexpr const char* kNames[kOpGroups] = {"products",    "attention", "head_loss", "norms",
                                             "elementwise", "optimizer", "copies",    "states",
                                             "states_wait", "reduction"};
  return kNames[static_cast<std::size_t>(group)];
}

double OpTimes::in_line() const {
  double sum = 0;
  for (std::size_t i = 0; i < kOpGroups; ++i)
    if (static_cast<OpGroup>(i) < OpGroup::kStates) sum += seconds[i];
  return sum;
}

}  // namespace eaglet
