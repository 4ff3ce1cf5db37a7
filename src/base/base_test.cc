#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/spill_memory.h"

namespace eaglet {
namespace {

std::string fresh_directory(const std::string& name) {
  const std::string path = testing::TempDir() + "eaglet_base_" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

TEST(Hash, Crc32cKnownValue) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);
}

TEST(AtomicFile, NothingAppearsWithoutCommit) {
  const std::string path = fresh_directory("atomic") + "/file";
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half").ok());
  }
  EXPECT_FALSE(path_exists(path));
  EXPECT_FALSE(path_exists(path + ".tmp"));
  ASSERT_TRUE(write_file_atomic(path, "whole").ok());
  EXPECT_EQ(*read_file(path), "whole");
}

TEST(Files, WrittenOnceOfManyWritersOneStays) {
  const std::string directory = fresh_directory("once");
  for (int round = 0; round < 20; ++round) {
    const std::string path = directory + "/note" + std::to_string(round);
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(write_file_once(path, "by " + std::to_string(i)).ok() ? 0 : 1);
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    const auto content = read_file(path);
    ASSERT_TRUE(content.ok());
    EXPECT_EQ(content->size(), 4u) << *content;
    ASSERT_TRUE(write_file_once(path, "later").ok());
    EXPECT_EQ(*read_file(path), *content);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 20);  // no half ones
}

TEST(LineAppender, CutsTheHalfLineThatAKillLeft) {
  const std::string path = fresh_directory("lines") + "/log";
  ASSERT_TRUE(write_file_atomic(path, "one\ntwo\nthr").ok());
  auto appender = LineAppender::open(path);
  ASSERT_TRUE(appender.ok());
  EXPECT_EQ(appender->cut_bytes(), 3u);
  ASSERT_TRUE(appender->append("three").ok());
  EXPECT_EQ(*read_file(path), "one\ntwo\nthree\n");
}

TEST(DirectoryLock, SecondTakerIsToldWhoHasIt) {
  const std::string path = fresh_directory("lock");
  auto first = DirectoryLock::take(path);
  ASSERT_TRUE(first.ok());
  auto second = DirectoryLock::take(path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kBusy);
  EXPECT_NE(second.status().what().find(std::to_string(getpid())), std::string::npos);
}

TEST(Files, MissingFileIsNotFound) {
  EXPECT_EQ(read_file("/no/such/file").status().code(), StatusCode::kNotFound);
}

TEST(Rng, SameSeedSameNumbersAndNormalMoments) {
  Rng a(7, 1), b(7, 1), c(7, 2);
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
  double sum = 0, squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = a.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
}

TEST(Clock, HumanForms) {
  EXPECT_EQ(human_duration(187), "3m07s");
  EXPECT_EQ(human_bytes(1880883200.0), "1.88 GB");
  EXPECT_EQ(rfc3339_utc(0), "1970-01-01T00:00:00Z");
}

TEST(Hash, PieceByPieceIsTheSame) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i * i);
  Xxh64 hash;
  EXPECT_EQ(hash.value(), xxh64(""));
  for (std::size_t at = 0, n = 1; at < text.size(); at += n, n = n * 3 % 101)
    hash.add(text.data() + at, std::min(n, text.size() - at));
  EXPECT_EQ(hash.value(), xxh64(text));
}

TEST(SpillMemory, HoldsWhatWasWrittenInMemoryAndInAFile) {
  const std::string place = fresh_directory("spill");
  for (const std::string& directory : {std::string(), place}) {
    SpillMemory memory;
    ASSERT_TRUE(memory.reserve(directory, 1000).ok());
    ASSERT_TRUE(memory.reserve(directory, 3 << 20).ok());  // grows
    auto* numbers = memory.as<std::uint32_t>();
    const std::size_t n = (3 << 20) / 4;
    for (std::size_t i = 0; i < n; ++i) numbers[i] = static_cast<std::uint32_t>(i * 7);
    memory.release(100, 2 << 20);
    ASSERT_TRUE(memory.reserve(directory, 10).ok());  // never shrinks
    SpillMemory moved = std::move(memory);
    numbers = moved.as<std::uint32_t>();
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(numbers[i], static_cast<std::uint32_t>(i * 7));
    EXPECT_TRUE(std::filesystem::is_empty(place));  // no name to be left behind
  }
  SpillMemory memory;
  EXPECT_EQ(memory.reserve("/no/such/place", 10).code(), StatusCode::kNotFound);
  EXPECT_EQ(memory.reserve(place, std::uint64_t{1} << 60).code(), StatusCode::kNoSpace);
}

}  // namespace
}  // namespace eaglet
