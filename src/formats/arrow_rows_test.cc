#include "formats/arrow_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "formats/conversations.h"

namespace eaglet {
namespace {

using testing::HasSubstr;

const std::string kData = std::string(EAGLET_TESTDATA) + "/arrow/";

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  auto rows = RowSource::open(path);
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  RowText row;
  while (rows.ok()) {
    const auto there = (*rows)->next(&row);
    EXPECT_TRUE(there.ok()) << there.status().message();
    if (!there.ok() || !*there) break;
    EXPECT_EQ(row.number, lines.size() + 1);
    lines.push_back(row.text);
  }
  return lines;
}

TEST(ArrowRows, ASavedDatasetIsItsRows) {
  EXPECT_EQ(lines_of(kData + "tokens"), lines_of(kData + "expected.jsonl"));
  EXPECT_EQ(lines_of(kData + "large.arrow"), lines_of(kData + "expected.jsonl"));
}

TEST(ArrowRows, OtherWidthsTextsAndMissingOnes) {
  const auto file = read_conversations(kData + "mixed"), plain = read_conversations(kData + "expected.jsonl");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->conversations.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Conversation& row = file->conversations[i];
    EXPECT_EQ(row.id, "c" + std::to_string(i));
    EXPECT_EQ(row.input_ids, plain->conversations[i].input_ids);
    EXPECT_EQ(row.loss_mask, plain->conversations[i].loss_mask);
    EXPECT_EQ(row.text, i == 1 ? "" : "a\"" + std::to_string(i));
  }
}

/// A stream whose columns share their children: 8 levels of 16 references, 900 bytes that stand for 16^8
/// columns.
std::string shared_children() {
  std::string bytes;
  const auto put = [&bytes](auto... values) {
    (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  };
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  put(U32{16}, U16{12}, U16{20}, U16{0}, U16{4}, U16{8}, U16{12});                // the message's fields
  put(std::int32_t{12}, U32{1}, U32{20}, std::int64_t{0});                        // a schema, no body
  put(U16{8}, U16{8}, U16{0}, U16{4}, std::int32_t{8}, U32{4}, U32{1}, U32{20});  // one column
  constexpr U32 kLevels = 8, kChildren = 16, kLevelBytes = 28 + 4 + 4 * kChildren;
  for (U32 level = 0; level < kLevels; ++level) {
    const U16 children = level + 1 < kLevels ? 8 : 0;
    put(U16{16}, U16{12}, U16{0}, U16{0}, U16{4}, U16{0}, U16{0}, children);
    put(std::int32_t{16}, U32{13}, U32{4}, kChildren);  // a struct
    for (U32 child = 0; child < kChildren; ++child) put(kLevelBytes + 16 - 32 - 4 * child);
  }
  const U32 marker = 0xffffffffu, length = static_cast<U32>(bytes.size());
  std::string stream(reinterpret_cast<const char*>(&marker), 4);
  return stream.append(reinterpret_cast<const char*>(&length), 4) + bytes;
}

TEST(ArrowRows, ColumnsThatShareTheirChildrenEnd) {
  const std::string stream = shared_children();
  const auto rows = parse_arrow_stream(reinterpret_cast<const std::byte*>(stream.data()), stream.size());
  EXPECT_THAT(rows.status().what(), HasSubstr("more than 4096 columns"));
}

TEST(ArrowRows, WhatIsNotReadIsRefusedByName) {
  const auto refused = [](const std::string& name, const std::string& why) {
    const Status status = RowSource::open(kData + name).status();
    EXPECT_EQ(status.code(), StatusCode::kConfig) << name;
    EXPECT_THAT(status.what(), HasSubstr(why));
  };
  refused("talks", "the dataset's columns are messages");
  refused("file_format.arrow", "random-access format");
  RowText row;
  auto packed = RowSource::open(kData + "compressed.arrow");
  ASSERT_TRUE(packed.ok());
  const Status status = (*packed)->next(&row).status();
  EXPECT_EQ(status.code(), StatusCode::kConfig);
  EXPECT_THAT(status.what(), HasSubstr("compressed batches"));
}

TEST(ArrowRows, OnlyPlainNamesInStateJson) {
  const std::string folder = testing::TempDir() + "eaglet_arrow_state";
  ASSERT_TRUE(remove_all(folder).ok() && make_directories(folder).ok());
  ASSERT_TRUE(
      write_file_atomic(folder + "/state.json", R"({"_data_files":[{"filename":"../x.arrow"}]})").ok());
  EXPECT_THAT(RowSource::open(folder).status().what(), HasSubstr("no plain name"));
}

// Cut at every length and with every byte changed: rows or a clear error, never a read outside the file.
TEST(ArrowRows, CutAndChangedBytes) {
  for (const char* name :
       {"tokens/data-00000-of-00002.arrow", "mixed/data-00000-of-00001.arrow", "large.arrow"}) {
    const auto file = MappedFile::open(kData + name);
    ASSERT_TRUE(file.ok());
    const std::vector<std::byte> whole(file->data(), file->data() + file->bytes());
    ASSERT_TRUE(parse_arrow_stream(whole.data(), whole.size()).ok());
    std::size_t failed = 0;
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      failed += !parse_arrow_stream(cut.data(), cut.size()).ok();
    }
    EXPECT_GT(failed, whole.size() / 2);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const unsigned change : {0xffu, 0x01u, 0x80u}) {
        std::vector<std::byte> changed = whole;
        changed[at] ^= static_cast<std::byte>(change);
        (void)parse_arrow_stream(changed.data(), changed.size()).ok();
      }
    }
  }
}

}  // namespace
}  // namespace eaglet
