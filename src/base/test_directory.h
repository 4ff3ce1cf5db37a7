#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace eaglet {

/// For tests: an empty directory for the running test; `name` tells several of one test apart. It is this
/// process's own, so tests of two checkouts may run at once, and all of them are gone when the process ends.
inline std::string test_directory(const std::string& name = "files") {
  struct Root {
    std::filesystem::path path =
        std::filesystem::path(testing::TempDir()) / ("eaglet_test_" + std::to_string(::getpid()));
    ~Root() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Root root;
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const auto path = root.path / (std::string(info->test_suite_name()) + "_" + info->name() + "_" + name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path.string();
}

}  // namespace eaglet
