#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/test_directory.h"
#include "monitor/file_leftovers.h"
#include "monitor/wake.h"

namespace eaglet::monitor {
namespace {

/// A file of an hour ago.
std::string put_old(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  const timespec times[2] = {{::time(nullptr) - 3600, 0}, {::time(nullptr) - 3600, 0}};
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);
  return path;
}

/// A small whole safetensors file: one tensor of two floats.
std::string safetensors() {
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 8 != 0) header += ' ';
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + std::string(8, '\1');
}

std::string why_of(const std::vector<FileLeftover>& all, const std::string& path) {
  for (const FileLeftover& one : all)
    if (one.path == path) return one.why;
  return {};
}

TEST(FileLeftovers, HalfCheckpointsTemporariesAndLocks) {
  const std::string dir = std::filesystem::canonical(test_directory()).string();
  for (const char* step : {"checkpoint-100", "checkpoint-200", "checkpoint-300"}) {
    put_old(dir + "/" + step + "/model.safetensors", safetensors());
    put_old(dir + "/" + step + "/training_state.json", "{}");
  }
  put_old(dir + "/checkpoint-400/model.safetensors", safetensors());  // its state never came
  put_old(dir + "/checkpoint-500/model.safetensors", safetensors().substr(0, 70));
  put_old(dir + "/checkpoint-500/training_state.json", "{}");
  put_old(dir + "/checkpoint-600/model.safetensors", "");
  put_old(dir + "/last.pt", "weights of another kind, whole");
  const std::string temporary = put_old(dir + "/checkpoint-300/optimizer.pt.tmp", "half");
  const std::string lock = put_old(dir + "/data.lock", "");
  put_old(dir + "/.lock", "4711");  // held by flock, or by nobody
  const ProcReader reader;
  const auto found = file_leftovers(dir, reader);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->size(), 5u);
  EXPECT_NE(why_of(*found, dir + "/checkpoint-400").find("no training_state.json, which the others have"),
            std::string::npos);
  EXPECT_NE(why_of(*found, dir + "/checkpoint-500").find("model.safetensors is cut off"), std::string::npos);
  EXPECT_NE(why_of(*found, dir + "/checkpoint-600").find("is empty"), std::string::npos);
  EXPECT_NE(why_of(*found, temporary).find("half written"), std::string::npos);
  EXPECT_NE(why_of(*found, lock).find("nobody holds"), std::string::npos);
  EXPECT_NEAR(found->front().age_seconds, 3600, 60);
  EXPECT_EQ(file_leftovers(dir + "/none", reader).status().code(), StatusCode::kNotFound);
}

TEST(FileLeftovers, WhatIsOpenLockedOrNewIsSomebodys) {
  const std::string dir = std::filesystem::canonical(test_directory()).string();
  const std::string open_one = put_old(dir + "/a.tmp", "x"), locked = put_old(dir + "/b.lock", "");
  const ProcReader reader;
  ASSERT_EQ(file_leftovers(dir, reader)->size(), 2u);
  const int fd = ::open(open_one.c_str(), O_WRONLY | O_CLOEXEC),
            held = ::open(locked.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_TRUE(file_leftovers(dir, reader)->empty());
  ::close(fd);
  ::close(held);
  std::ofstream(open_one, std::ios::app) << "y";  // written a moment ago
  const auto found = file_leftovers(dir, reader);
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().path, locked);
}

TEST(FileLeftovers, ALockOfPyTorchsBuilds) {
  const std::string dir = std::filesystem::canonical(test_directory()).string();
  const std::string lock = put_old(dir + "/py311_cu126/fused/lock", "");
  put_old(dir + "/py311_cu126/fused/build.ninja.tmp", "");
  ::setenv("TORCH_EXTENSIONS_DIR", dir.c_str(), 1);
  const auto found = stale_build_locks(ProcReader());
  ::unsetenv("TORCH_EXTENSIONS_DIR");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path, lock);
}

void after(double seconds, const std::function<void()>& act) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  act();
}

TEST(Wake, ALogThatGrowsAFileThatComesAndAnEnd) {
  const std::string dir = test_directory(), log = dir + "/train.log";
  std::filesystem::create_directories(dir + "/out");
  std::ofstream(log) << "step=1\n";
  Wake wake;
  const auto woken_after = [&](const std::function<void()>& act, double patience) {
    const double begin = monotonic_seconds();
    std::thread other(after, 0.1, act);
    const bool woken = wake.wait(patience);
    const double seconds = monotonic_seconds() - begin;
    other.join();
    return woken ? seconds : 100 + seconds;
  };
  wake.follow({}, log, dir + "/out");
  EXPECT_LT(woken_after([&] { std::ofstream(log, std::ios::app) << "step=2\n"; }, 5), 2.5);
  EXPECT_LT(woken_after([&] { std::ofstream(dir + "/out/checkpoint") << "x"; }, 5), 2.5);
  EXPECT_LT(woken_after([&] { std::filesystem::rename(log, log + ".1"); }, 5), 2.5);
  std::ofstream(log) << "step=3\n";
  wake.follow({}, log, dir + "/out");  // the new file of that name
  EXPECT_LT(woken_after([&] { std::ofstream(log, std::ios::app) << "step=4\n"; }, 5), 2.5);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  wake.follow({child}, "", "");
  EXPECT_LT(woken_after([&] { ::kill(child, SIGKILL); }, 5), 2.5);
  ::waitpid(child, nullptr, 0);
  wake.follow({}, "/no/such/log", "");
  EXPECT_GT(woken_after([] {}, 0.3), 100) << "nothing to listen to: the pause is as long as it was";
}

}  // namespace
}  // namespace eaglet::monitor
