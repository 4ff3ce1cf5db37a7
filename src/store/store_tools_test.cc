#include "store/store_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "store/store_test_helpers.h"

namespace eaglet {
namespace {

using testing::UnorderedElementsAre;

const auto kAll = [](const StoredDocument&) { return true; };

std::vector<DocumentStates> documents(const StoreHeader& header, int first, int count) {
  std::vector<DocumentStates> made;
  for (int i = first; i < first + count; ++i) made.push_back(random_document(header, i, 6 + i % 5));
  return made;
}

TEST(StoreTools, MergeSubsetAndAnotherForm) {
  const StoreHeader header = small_header();
  const std::string a = test_directory("a"), b = test_directory("b"), all = test_directory("all"),
                    some = test_directory("some"), packed = test_directory("packed");
  const auto first = documents(header, 0, 7), second = documents(header, 7, 5);
  write_store(a, header, first, 900);
  write_store(b, header, second);
  NoProgress quiet;
  const auto merged = copy_store({a, b}, all, {}, kAll, quiet);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  EXPECT_EQ(merged->documents, 12);
  EXPECT_EQ(copy_store({a, b}, all, {}, kAll, quiet)->already_there, 12);
  const auto short_ones = [](const StoredDocument& d) { return d.tokens < 8; };
  ASSERT_TRUE(copy_store({all}, some, {}, short_ones, quiet).ok());
  const auto only_short = StoreReader::open(some);
  ASSERT_TRUE(only_short.ok());
  for (const StoredDocument& document : (*only_short)->documents()) EXPECT_LT(document.tokens, 8);
  ASSERT_TRUE(copy_store({all}, packed, {.encoding = StateEncoding::kPlanes}, kAll, quiet).ok());
  const auto store = StoreReader::open(packed);
  ASSERT_EQ((*store)->documents().size(), 12u);
  for (std::size_t i = 0; i < 7; ++i) expect_same_document(*(*store)->read(i), first[i]);
  StoreHeader other = header;
  other.target_identity = "ffffffffffffffff";
  const std::string foreign = test_directory("foreign");
  write_store(foreign, other, documents(other, 20, 1));
  EXPECT_EQ(copy_store({a, foreign}, all, {}, kAll, quiet).status().code(), StatusCode::kConfig);
}

TEST(StoreTools, RepairKeepsEveryWholeDocumentAndNamesTheLost) {
  const StoreHeader header = small_header();
  const std::string directory = test_directory();
  const auto made = documents(header, 0, 6);
  write_store(directory, header, made);
  const std::string path = directory + "/000000.shard";
  const auto before = StoreReader::open(directory);
  std::uint64_t at = 0;
  {
    const auto file = MappedFile::open(path);
    // The states of the third document: behind the header and two records.
    std::uint32_t header_bytes = 0;
    std::memcpy(&header_bytes, file->data() + 12, 4);
    at = header_bytes + (*before)->documents()[0].bytes + (*before)->documents()[1].bytes + 200;
  }
  poke(path, at, static_cast<char>(0x55));
  NoProgress quiet;
  const auto report = repair_store(directory, quiet);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->shards, 1);
  EXPECT_EQ(report->kept, 5);
  EXPECT_THAT(report->lost, UnorderedElementsAre("doc2"));
  const auto after = StoreReader::open(directory);
  ASSERT_TRUE(after.ok()) << after.status().message();
  ASSERT_EQ((*after)->documents().size(), 5u);
  EXPECT_TRUE((*after)->verify().ok());
  expect_same_document(*(*after)->read(2), made[3]);
  EXPECT_TRUE(path_exists(path + ".damaged"));
  EXPECT_EQ(repair_store(directory, quiet)->shards, 0);
}

TEST(StoreTools, RepairSavesACutShard) {
  const StoreHeader header = small_header();
  const std::string directory = test_directory();
  write_store(directory, header, documents(header, 0, 6));
  const std::string path = directory + "/000000.shard";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 700);
  NoProgress quiet;
  const auto report = repair_store(directory, quiet);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GE(report->kept, 4);
  EXPECT_TRUE((*StoreReader::open(directory))->verify().ok());
}

}  // namespace
}  // namespace eaglet
