#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "base/files.h"
#include "base/test_directory.h"
#include "formats/conversations.h"
#include "formats/safetensors.h"

namespace eaglet {
namespace {

// Files of others cut at every byte and with every bit flipped: the answer is what they hold or a clear
// error, and what is handed out keeps the promises of the headers.

using testing::HasSubstr;

std::string safetensors_bytes() {
  const std::string path = test_directory() + "/small.safetensors";
  const float a[6] = {1, 2, 3, 4, 5, 6};
  const std::int64_t ids[3] = {7, 8, 9};
  EXPECT_TRUE(write_safetensors(path,
                                {{"weight", Dtype::kF32, {2, 3}, a},
                                 {"ids", Dtype::kI64, {3}, ids},
                                 {"none", Dtype::kBF16, {0, 4}, nullptr}},
                                {{"format", "pt"}})
                  .ok());
  return *read_file(path);
}

Result<std::vector<SafetensorsEntry>> parse(const std::string& bytes) {
  std::map<std::string, std::string> metadata;
  std::uint64_t data_start = 0;
  auto entries = SafetensorsFile::parse_header(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(),
                                               &metadata, &data_start);
  if (!entries.ok()) return entries;
  // The promise: tensors lie within the file, end to end, of the size their shape says.
  std::uint64_t all = 0;
  for (const SafetensorsEntry& entry : *entries) {
    EXPECT_EQ(entry.bytes, static_cast<std::uint64_t>(entry.elements()) * dtype_bytes(entry.dtype));
    EXPECT_LE(entry.offset + entry.bytes, bytes.size() - data_start);
    all += entry.bytes;
  }
  EXPECT_EQ(all, bytes.size() - data_start);
  return entries;
}

TEST(SafetensorsCorruption, CutAtEveryByte) {
  const std::string whole = safetensors_bytes();
  ASSERT_TRUE(parse(whole).ok());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto cut = parse(whole.substr(0, length));
    ASSERT_EQ(cut.status().code(), StatusCode::kDataLoss) << length;
    ASSERT_FALSE(cut.status().what().empty());
  }
  EXPECT_FALSE(parse(whole + "x").ok());
}

TEST(SafetensorsCorruption, EveryBitFlipped) {
  const std::string whole = safetensors_bytes();
  int refused = 0, read = 0;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto entries = parse(damaged);
      ++(entries.ok() ? read : refused);
      if (!entries.ok()) {
        ASSERT_EQ(entries.status().code(), StatusCode::kDataLoss) << at;
      }
    }
  EXPECT_GT(refused, 800);
  EXPECT_GT(read, 300);  // names, and the data itself
}

std::string with_header(std::string header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, 'x');
}

TEST(SafetensorsCorruption, HeadersThatLie) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_TRUE(parse(with_header(tensor("U8", "[2,2]", "[0,4]"), 4)).ok());
  EXPECT_TRUE(parse(with_header("{}", 0)).ok());
  for (
      const std::string& header : {
          tensor("U8", "[5]", "[0,4]"),
          tensor("U8", "[4]", "[4,0]"),
          tensor("U8", "[4]", "[1,5]"),
          tensor("U8", "[2]", "[0,2]"),
          tensor("U8", "[-4]", "[0,4]"),
          tensor("U8", "[4.0]", "[0,4]"),
          tensor("U8", "4", "[0,4]"),
          tensor("U9", "[4]", "[0,4]"),
          tensor("U8", "[4]", "[0]"),
          tensor("U8", "[4294967296,4294967296,4]", "[0,4]"),
          tensor("F64", "[2305843009213693952]", "[0,0]"),
          tensor("U8", "[18446744073709551615]", "[0,4]"),
          tensor("U8", "[4]", "[0,18446744073709551615]"),
          std::string(R"({"a":7})"),
          std::string("[]"),
          std::string("{"),
          std::string(),
          std::string(R"({"__metadata__":{"a":1}})"),
          std::string(R"({"__metadata__":7})"),
          std::string(100000, '['),
          "{\"a\":" + std::string(100000, '[') + "}",
          std::string(
              R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})"),
          std::string("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"),
      })
    EXPECT_EQ(parse(with_header(header, 4)).status().code(), StatusCode::kDataLoss) << header.substr(0, 80);
  // Claims of more than the file holds must not be allocated.
  for (const std::uint64_t claim : {std::uint64_t{1} << 40, ~std::uint64_t{0}, std::uint64_t{99'999'999}}) {
    std::string bytes(reinterpret_cast<const char*>(&claim), 8);
    EXPECT_EQ(parse(bytes + "{}").status().code(), StatusCode::kDataLoss);
  }
}

TEST(ConversationsCorruption, EveryBitFlipped) {
  const std::string line =
      R"({"id":"a1","input_ids":[1,23,456],"loss_mask":[0,1,1],"finish_reason":"stop","messages":[{"role":"user","content":"hé"}],"text":"x"})";
  int refused = 0, read = 0;
  for (std::size_t at = 0; at < line.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = line;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto row = parse_conversation(damaged);
      if (row.ok()) {
        ++read;
        EXPECT_FALSE(row->id.empty());
        EXPECT_FALSE(row->input_ids.empty());
        EXPECT_EQ(row->input_ids.size(), row->loss_mask.size());
        for (const std::int32_t id : row->input_ids) EXPECT_GE(id, 0);
        for (const std::uint8_t mask : row->loss_mask) EXPECT_LE(mask, 1);
        EXPECT_TRUE(parse_conversation(conversation_line(*row)).ok());  // what we take in we can write
      } else {
        ++refused;
        EXPECT_EQ(row.status().code(), StatusCode::kDataLoss);
        EXPECT_FALSE(row.status().what().empty());
      }
    }
  EXPECT_GT(refused, 300);
  EXPECT_GT(read, 50);
}

TEST(ConversationsCorruption, FileCutAtEveryByteKeepsTheWholeLines) {
  const std::string path = test_directory() + "/rows.jsonl";
  std::string whole;
  std::vector<std::size_t> ends;  // where the text of each row is complete
  for (int i = 0; i < 3; ++i) {
    Conversation row;
    row.id = "row" + std::to_string(i);
    row.input_ids = {1, 2};
    row.loss_mask = {0, 1};
    whole += conversation_line(row);
    ends.push_back(whole.size());
    whole += "\n";
  }
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, length);
    const auto file = read_conversations(path);
    const auto complete =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), length) - ends.begin());
    ASSERT_EQ(file.ok(), complete > 0) << length;
    if (file.ok()) {
      EXPECT_EQ(file->conversations.size(), complete);
    }
  }
}

TEST(PromptsCorruption, EveryBitFlippedAndCutAtEveryByte) {
  const std::string line =
      R"({"id":"p","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"é"}]}]})";
  ASSERT_TRUE(parse_prompt(line).ok());
  for (std::size_t at = 0; at < line.size(); ++at) {
    EXPECT_FALSE(parse_prompt(std::string_view(line).substr(0, at)).ok());
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = line;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto prompt = parse_prompt(damaged);
      if (prompt.ok()) {
        EXPECT_FALSE(prompt->messages.empty());
        EXPECT_TRUE(prompt->messages.back()["content"].is_string());
      } else {
        EXPECT_FALSE(prompt.status().what().empty());
      }
    }
  }
}

}  // namespace
}  // namespace eaglet
