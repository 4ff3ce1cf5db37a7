#include "monitor/open_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/test_directory.h"

namespace eaglet::monitor {
namespace {

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// A process that has these open for reading, from descriptor 3 on, and those mapped.
HostRoots process_with(const std::string& root, const std::vector<std::string>& open,
                       const std::vector<std::string>& mapped, const char* flags = "0100000") {
  HostRoots roots;
  roots.proc = root + "/proc";
  std::string maps = "55d0-55d1 r-xp 0 08:01 7 /usr/bin/python3.11\n7ffd-7ffe rw-p 0 00:00 0 [stack]\n";
  for (const std::string& path : mapped) maps += "7f00-7f01 r--p 0 08:01 9                  " + path + "\n";
  put(roots.proc + "/10/maps", maps);
  std::filesystem::create_directories(roots.proc + "/10/fd");
  int fd = 3;
  for (const std::string& path : open) {
    std::filesystem::create_symlink(path, roots.proc + "/10/fd/" + std::to_string(fd));
    put(roots.proc + "/10/fdinfo/" + std::to_string(fd), std::string("pos:\t0\nflags:\t") + flags + "\n");
    ++fd;
  }
  return roots;
}

TEST(OpenData, TheFolderOfMostOpenAndMappedDataFiles) {
  const std::string root = test_directory();
  const HostRoots roots =
      process_with(root, {"/data/states/0.safetensors", "/data/prompts.jsonl", "/usr/share/x.npy"},
                   {"/data/states/1.safetensors", "/data/states/1.safetensors", "/data/my states/a.npy",
                    "/models/kimi/model-00001-of-00002.safetensors",
                    "/models/kimi/model-00002-of-00002.safetensors", "/models/kimi/model-3.safetensors"});
  const DataFrom found = find_open_data(ProcReader(roots), {10, 11}, "/out");
  EXPECT_EQ(found.folder, "/data/states");
  EXPECT_EQ(found.files, 2);
  EXPECT_EQ(found.filesystem, "");
}

TEST(OpenData, WhatTheRunWritesIsNoData) {
  const std::string root = test_directory();
  const HostRoots out = process_with(root + "/a", {"/out/step-4/d2t.npy", "/out/cache/x.npy"}, {});
  EXPECT_EQ(find_open_data(ProcReader(out), {10}, "/out").folder, "");
  EXPECT_EQ(find_open_data(ProcReader(out), {10}, "").files, 1);
  const HostRoots written = process_with(root + "/b", {"/data/states/0.safetensors"}, {}, "0100001");
  EXPECT_EQ(find_open_data(ProcReader(written), {10}, "/out").folder, "") << "open for writing";
  EXPECT_EQ(find_open_data(ProcReader(written), {}, "/out").folder, "");
}

TEST(OpenData, AsLongAsNothingIsFoundLooksBecomeRare) {
  DataLookPause pause;
  const auto looks = [&](double from, double to, std::size_t processes) {
    std::vector<double> times;
    for (double now = from; now < to; ++now)
      if (pause.over(now, processes)) times.push_back(now);
    return times;
  };
  EXPECT_EQ(looks(0, 600, 3), (std::vector<double>{0, 30, 90, 210, 450}));
  EXPECT_EQ(looks(600, 3000, 3), (std::vector<double>{930, 1530, 2130, 2730}));
  EXPECT_EQ(looks(3000, 3200, 7), (std::vector<double>{3000, 3060, 3180})) << "its loaders have begun";
  EXPECT_EQ(looks(3200, 3500, 5), (std::vector<double>{3420})) << "fewer are nothing new";
}

TEST(OpenData, FileSystems) {
  EXPECT_EQ(network_filesystem("/proc"), "");
  EXPECT_EQ(network_filesystem("/no/such/place"), "");
}

}  // namespace
}  // namespace eaglet::monitor
