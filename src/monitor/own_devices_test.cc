#include "monitor/own_devices.h"

#include <gtest/gtest.h>

namespace eaglet::monitor {
namespace {

/// Four GPUs; a run of the process 10, and what the driver lists.
RunView view_of(const std::vector<DeviceProcess>& listed, bool holds_device = true) {
  RunView view;
  view.processes.emplace(1);
  view.processes->front().pid = 10;
  view.processes->front().holds_device = holds_device;
  view.processes->front().files_known = true;
  view.devices.emplace();
  for (std::int64_t i = 0; i < 4; ++i) {
    DeviceView device;
    device.index = i;
    device.id = "GPU-" + std::string(1, static_cast<char>('a' + i)) + "1234";
    view.devices->push_back(device);
  }
  view.device_processes = listed;
  return view;
}

std::string kept(const RunView& view) {
  std::string indices;
  for (const DeviceView& device : *view.devices) indices += std::to_string(device.index);
  return indices;
}

std::string restricted(RunView view, const std::set<std::string>& visible = {}, bool in_container = false) {
  OwnDevices own;
  own.restrict(visible, in_container, &view);
  return kept(view);
}

TEST(OwnDevices, WhereTheDriverListsTheRun) {
  OwnDevices own;
  RunView view = view_of({{99, 0, 1e9}, {10, 2, 1e9}, {77, 2, 1e9}});
  own.restrict({}, false, &view);
  EXPECT_EQ(kept(view), "2");
  ASSERT_EQ(view.device_processes->size(), 2u) << "a neighbour on our own GPU stays in sight";
  RunView later = view_of({{99, 0, 1e9}});
  own.restrict({}, false, &later);
  EXPECT_EQ(kept(later), "2") << "for the rest of its life";
}

TEST(OwnDevices, AsItsEnvironmentNamesThem) {
  EXPECT_EQ(restricted(view_of({}), {"1,3"}), "13");
  EXPECT_EQ(restricted(view_of({}), {"1", "0"}), "01") << "each rank its own";
  EXPECT_EQ(restricted(view_of({}), {"GPU-b12,GPU-d1234"}), "13");
  EXPECT_EQ(restricted(view_of({}), {"2,-1,3"}), "2")
      << "as CUDA reads it: nothing behind a wrong entry counts";
  EXPECT_EQ(restricted(view_of({}), {"MIG-5"}), "0123") << "an instance names no whole device";
}

TEST(OwnDevices, NumbersOfBoardsOfSeveralKinds) {
  RunView mixed = view_of({});
  mixed.devices->back().name = "a faster one";  // CUDA's 0, the driver's 3
  EXPECT_EQ(restricted(mixed, {"0"}), "0123") << "which one that is cannot be told";
  EXPECT_EQ(restricted(mixed, {"GPU-d1234"}), "3");
  OwnDevices own;
  own.numbered_by_bus();
  own.restrict({"0"}, false, &mixed);
  EXPECT_EQ(kept(mixed), "0");
}

TEST(OwnDevices, NoneOfSomebodyElse) {
  EXPECT_EQ(restricted(view_of({{99, 0, 1e9}, {98, 3, 1e9}})), "12");
  EXPECT_EQ(restricted(view_of({{99, 0, 1e9}}), {}, true), "0123")
      << "in a container the ids are another space's";
}

TEST(OwnDevices, ARunThatUsesNoGpu) {
  EXPECT_EQ(restricted(view_of({}, false)), "");
  RunView hidden = view_of({}, false);
  hidden.processes->front().files_known = false;
  EXPECT_EQ(restricted(hidden), "0123") << "not to be seen is not none";
}

}  // namespace
}  // namespace eaglet::monitor
