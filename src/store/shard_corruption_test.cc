#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "store/shard_format.h"
#include "store/store.h"
#include "store/store_test_helpers.h"

namespace eaglet {
namespace {

// A finished shard cut at every byte and with every bit flipped: the answer is its data or a clear error.

struct SmallShard {
  std::string directory, path, bytes;
  std::vector<DocumentStates> documents;
};

SmallShard small_shard() {
  SmallShard shard;
  shard.directory = test_directory();
  shard.path = shard.directory + "/000000.shard";
  for (int i = 0; i < 3; ++i) shard.documents.push_back(random_document(small_header(), i, 1 + i));
  write_store(shard.directory, small_header(), shard.documents);
  shard.bytes = *read_file(shard.path);
  return shard;
}

TEST(ShardCorruption, CutAtEveryByte) {
  const SmallShard shard = small_shard();
  for (std::size_t length = shard.bytes.size(); length-- > 0;) {
    std::filesystem::resize_file(shard.path, length);
    const auto reader = StoreReader::open(shard.directory);
    ASSERT_FALSE(reader.ok()) << length;
    ASSERT_EQ(reader.status().code(), StatusCode::kDataLoss) << length;
    ASSERT_THAT(reader.status().where(), testing::HasSubstr("000000.shard"));
    ASSERT_FALSE(reader.status().todo().empty());
  }
}

TEST(ShardCorruption, LongerThanItShouldBe) {
  const SmallShard shard = small_shard();
  for (const std::size_t extra : {1, 7, 8, 64, 4096}) {
    write_raw(shard.path, shard.bytes + std::string(extra, '\0'));
    ASSERT_EQ(StoreReader::open(shard.directory).status().code(), StatusCode::kDataLoss) << extra;
  }
}

TEST(ShardCorruption, EveryBitFlipped) {
  const SmallShard shard = small_shard();
  int found_at_opening = 0, found_at_reading = 0;
  for (std::size_t at = 0; at < shard.bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      poke(shard.path, at, static_cast<char>(shard.bytes[at] ^ (1 << bit)));
      const auto reader = StoreReader::open(shard.directory);
      if (!reader.ok()) {
        const StatusCode code = reader.status().code();
        ASSERT_TRUE(code == StatusCode::kDataLoss || code == StatusCode::kConfig)
            << at << ": " << reader.status().message();
        ++found_at_opening;
        continue;
      }
      const Status verified = (*reader)->verify();
      ASSERT_EQ(verified.code(), StatusCode::kDataLoss) << at << "." << bit;
      ASSERT_THAT(verified.where(), testing::HasSubstr("'doc"));
      // Exactly the damaged document is refused; the others come back as they were.
      int refused = 0;
      for (std::size_t i = 0; i < shard.documents.size(); ++i) {
        const auto document = (*reader)->read(i);
        if (!document.ok())
          ++refused;
        else
          expect_same_document(*document, shard.documents[i]);
      }
      ASSERT_EQ(refused, 1) << at << "." << bit;
      ++found_at_reading;
    }
    poke(shard.path, at, shard.bytes[at]);
  }
  EXPECT_GT(found_at_opening, 1000);
  EXPECT_GT(found_at_reading, 1000);
}

// Sizes a writer of ours never makes, with right checksums.
TEST(ShardCorruption, LyingSizesUnderRightChecksums) {
  const StoreHeader header = small_header();
  std::string meta;
  const RecordHead good = [&] {
    const DocumentStates document = random_document(header, 0, 3);
    return encode_record(document, 0, document.states.data(), document.states.size() * 2, &meta);
  }();
  const auto refused = [&](auto change) {
    RecordHead head = good;
    change(head);
    head.head_checksum = 0;
    head.head_checksum = xxh64(&head, sizeof head);
    std::string shard = encode_shard_header(header);
    const std::string directory = encode_directory({head}, {"doc0"}, shard.size() + 64);
    shard += std::string(64, '\0') + directory;
    return decode_shard(reinterpret_cast<const std::byte*>(shard.data()), shard.size()).status().code();
  };
  EXPECT_EQ(refused([](RecordHead& h) { h.tokens = 0; }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([](RecordHead& h) { h.tokens = 0xffffffff; }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([](RecordHead& h) { h.states_bytes = ~std::uint64_t{0}; }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([](RecordHead& h) { h.record_bytes = ~std::uint64_t{0}; }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([](RecordHead& h) { h.record_bytes = 64; }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([](RecordHead& h) { h.name_bytes = 0; }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([](RecordHead& h) { h.encoding = 4; }), StatusCode::kConfig);
  EXPECT_EQ(refused([](RecordHead&) {}), StatusCode::kDataLoss);  // the record reaches into the directory
}

TEST(ShardCorruption, HeadersOfOtherKinds) {
  const std::string good = encode_shard_header(small_header());
  std::uint64_t bytes = 0;
  const auto decode = [&](const std::string& header) {
    return decode_shard_header(reinterpret_cast<const std::byte*>(header.data()), header.size(), &bytes)
        .status()
        .code();
  };
  EXPECT_EQ(decode(good), StatusCode::kOk);
  std::string newer = good;
  newer[8] = 2;
  EXPECT_EQ(decode(newer), StatusCode::kConfig);
  StoreHeader header = small_header();
  header.hidden = 0;
  EXPECT_EQ(decode(encode_shard_header(header)), StatusCode::kDataLoss);
  header.hidden = std::int64_t{1} << 40;
  EXPECT_EQ(decode(encode_shard_header(header)), StatusCode::kDataLoss);
  header = small_header();
  header.dtype = Dtype::kF16;
  EXPECT_EQ(decode(encode_shard_header(header)), StatusCode::kConfig);
}

}  // namespace
}  // namespace eaglet
