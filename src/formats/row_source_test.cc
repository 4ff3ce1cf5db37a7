#include "formats/row_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>

#include "base/files.h"
#include "base/test_directory.h"
#include "formats/conversations.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string written(const std::string& name, const std::string& content) {
  const std::string path = test_directory(name) + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string gzipped(const std::string& text) {
  std::string packed(compressBound(text.size()) + 64, '\0');
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd_packed(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as zstd's own tool does
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

struct ReadAll {
  std::vector<std::string> rows;
  Status status;
  bool last_unfinished = false;
};
ReadAll read_all(const std::string& path) {
  ReadAll all;
  auto source = RowSource::open(path);
  if (!source.ok()) return {{}, source.status()};
  RowText row;
  for (;;) {
    const auto there = (*source)->next(&row);
    all.status = there.ok() ? Status() : there.status();
    if (!there.ok() || !*there) return all;
    EXPECT_EQ(row.number, all.rows.size() + 1);
    all.rows.push_back(row.text);
    all.last_unfinished = row.unfinished;
  }
}

std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"n\": " + std::to_string(i * 7919) + "}\n";
  return text;
}

TEST(RowSource, LinesWithoutTheLastNewline) {
  const ReadAll all = read_all(written("a", "one\n\ntwo\r\n\xE2\x80\xA8three"));
  EXPECT_THAT(all.rows, ElementsAre("one", "", "two\r", "\xE2\x80\xA8three"));
  EXPECT_TRUE(all.last_unfinished);
  EXPECT_TRUE(read_all(written("empty", "")).rows.empty());
  EXPECT_EQ(read_all("/nonexistent/file").status.code(), StatusCode::kNotFound);
}

TEST(RowSource, PackedFilesGiveTheSameRows) {
  const std::string text = many_lines(60000);  // several buffers
  const ReadAll plain = read_all(written("plain", text));
  ASSERT_EQ(plain.rows.size(), 60000u);
  EXPECT_EQ(read_all(written("gz", gzipped(text))).rows, plain.rows);
  EXPECT_EQ(read_all(written("zst", zstd_packed(text))).rows, plain.rows);
  const std::string half = text.substr(0, text.size() / 2), rest = text.substr(text.size() / 2);
  EXPECT_EQ(read_all(written("members", gzipped(half) + gzipped(rest))).rows, plain.rows);
  EXPECT_EQ(read_all(written("frames", zstd_packed(half) + zstd_packed(rest))).rows, plain.rows);
}

TEST(RowSource, PackedFilesThatAreCutOrDamagedSaySo) {
  const std::string text = many_lines(5000);
  for (const std::string& packed : {gzipped(text), zstd_packed(text)}) {
    const ReadAll cut = read_all(written("cut", packed.substr(0, packed.size() - 5)));
    EXPECT_EQ(cut.status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(cut.status.what(), HasSubstr("cut short"));
    std::string damaged = packed;
    for (std::size_t i = damaged.size() / 2; i < damaged.size() / 2 + 40; ++i) damaged[i] ^= 0x55;
    EXPECT_EQ(read_all(written("damaged", damaged)).status.code(), StatusCode::kDataLoss);
  }
}

TEST(RowSource, OneJsonListOfRows) {
  const ReadAll all = read_all(written("list", " [ {\"a\": \"]},[\\\"\"},\n[1, {\"b\": []}] ,\"x,y\", 7]\n"));
  EXPECT_TRUE(all.status.ok());
  EXPECT_THAT(all.rows, ElementsAre("{\"a\": \"]},[\\\"\"}", "[1, {\"b\": []}] ", "\"x,y\"", "7"));
  EXPECT_TRUE(read_all(written("none", "[]")).rows.empty());
  const ReadAll cut = read_all(written("cut", "[{\"a\":1},{\"b\":"));
  EXPECT_EQ(cut.rows.size(), 2u);
  EXPECT_TRUE(cut.last_unfinished);
  EXPECT_EQ(read_all(written("open", "[{\"a\":1},")).status.code(), StatusCode::kDataLoss);
}

TEST(RowSource, ReadersTakeAnyPacking) {
  const std::string rows = "[{\"id\":\"a\",\"input_ids\":[1,2],\"loss_mask\":[0,1]},\n {\"id\": \"b\"}]";
  const auto file = read_conversations(written("rows.json.gz", gzipped(rows)));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->conversations.size(), 1u);
  ASSERT_EQ(file->broken.size(), 1u);
  EXPECT_EQ(file->broken[0].line, 2u);
}

}  // namespace
}  // namespace eaglet
