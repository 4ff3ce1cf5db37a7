#include "store/state_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "store/store_test_helpers.h"
#include "tensor/float8.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

StoreHeader header_of(StateEncoding encoding) {
  StoreHeader header = small_header();
  header.hidden = 37;
  if (encoding == StateEncoding::kFp8) header.dtype = Dtype::kF8E4M3;
  return header;
}

/// Documents that share their beginning, with states that nearly do.
std::vector<DocumentStates> alike(const StoreHeader& header, int count, int tokens) {
  std::vector<DocumentStates> documents;
  for (int i = 0; i < count; ++i) {
    documents.push_back(random_document(header, i, tokens + i));
    if (i == 0) continue;
    const int common = tokens / 2 + i;
    for (int t = 0; t < common && t < tokens; ++t) {
      documents[i].input_ids[t] = documents[0].input_ids[t];
      for (std::int64_t k = 0; k < header.slots() * header.hidden; ++k) {
        const auto at = static_cast<std::size_t>(t * header.slots() * header.hidden + k);
        documents[i].states[at] = static_cast<std::uint16_t>(documents[0].states[at] + (k % 3) - 1);
      }
    }
  }
  return documents;
}

TEST(StateCodec, LosslessIsBitForBitWithSharedBeginnings) {
  const StoreHeader header = header_of(StateEncoding::kPlanes);
  const auto documents = alike(header, 6, 40);
  const std::string directory = test_directory();
  write_store(directory, header, documents, {.encoding = StateEncoding::kPlanes});
  const auto store = StoreReader::open(directory);
  ASSERT_TRUE(store.ok()) << store.status().message();
  for (std::size_t i = documents.size(); i-- > 0;) {
    const auto document = (*store)->read(i);
    ASSERT_TRUE(document.ok()) << document.status().message();
    expect_same_document(*document, documents[i]);
    EXPECT_EQ((*store)->documents()[i].encoding, StateEncoding::kPlanes);
  }
  EXPECT_TRUE((*store)->verify().ok());
}

TEST(StateCodec, PartsOfADocument) {
  for (const StateEncoding encoding : {StateEncoding::kRaw, StateEncoding::kPlanes, StateEncoding::kFp8}) {
    const StoreHeader header = header_of(encoding);
    const auto documents = alike(header, 3, 30);
    const std::string directory = test_directory(state_encoding_name(encoding));
    write_store(directory, header, documents, {.encoding = encoding});
    const auto store = StoreReader::open(directory);
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const auto whole = (*store)->read(i)->states;
      const StateRange range{5, 9, 11};
      std::vector<float> aux(11 * 2 * 37), last(11 * 37);
      ASSERT_TRUE((*store)->read_states_f32(i, range, aux.data(), last.data()).ok());
      for (std::size_t t = 0; t < 11; ++t)
        for (std::size_t k = 0; k < 37; ++k) {
          EXPECT_EQ(aux[t * 74 + k], bf16_to_f32(whole[((t + 5) * 3) * 37 + k]));
          EXPECT_EQ(last[t * 37 + k], bf16_to_f32(whole[((t + 9) * 3 + 2) * 37 + k]));
        }
    }
  }
}

// What a device widens is what the host would have read: every form, dropped rows too.
TEST(StateCodec, StoredRowsWidenToWhatIsRead) {
  for (const StateEncoding encoding : {StateEncoding::kRaw, StateEncoding::kPlanes, StateEncoding::kFp8})
    for (const bool drop : {false, true}) {
      const StoreHeader header = header_of(encoding);
      const auto documents = alike(header, 3, 30);
      const std::string directory =
          test_directory(std::string(state_encoding_name(encoding)) + (drop ? "-less" : ""));
      write_store(directory, header, documents, {.encoding = encoding, .drop_unsupervised = drop});
      const auto store = StoreReader::open(directory);
      const bool fp8 = encoding == StateEncoding::kFp8;
      EXPECT_EQ((*store)->stored_form(), fp8 ? StateForm::kFp8 : StateForm::kBF16);
      constexpr std::int64_t kCount = 11, kWidth = 37, kLd = 13;
      for (std::size_t i = 0; i < documents.size(); ++i) {
        const StateRange range{5, 9, kCount};
        std::vector<float> aux(kCount * 2 * kWidth), last(kCount * kWidth), scales(2 * kLd), last_scales(kLd);
        ASSERT_TRUE((*store)->read_states_f32(i, range, aux.data(), last.data()).ok());
        std::vector<std::uint16_t> bits(aux.size()), last_bits(last.size());
        std::vector<std::uint8_t> bytes(aux.size()), last_bytes(last.size());
        const StoredRowsTo to{fp8 ? static_cast<void*>(bytes.data()) : bits.data(), scales.data(), kLd};
        const StoredRowsTo to_last{fp8 ? static_cast<void*>(last_bytes.data()) : last_bits.data(),
                                   last_scales.data(), kLd};
        ASSERT_TRUE((*store)->read_states_stored(i, range, to, to_last).ok());
        const auto widened = [&](std::uint8_t byte, float scale) {
          return bf16_to_f32(f32_to_bf16(f8e4m3_table()[byte] * scale));
        };
        for (std::size_t t = 0; t < kCount; ++t)
          for (std::size_t k = 0; k < 2 * kWidth; ++k) {
            const std::size_t at = t * 2 * kWidth + k;
            ASSERT_EQ(fp8 ? widened(bytes[at], scales[k / kWidth * kLd + t]) : bf16_to_f32(bits[at]),
                      aux[at]);
          }
        for (std::size_t at = 0; at < last.size(); ++at)
          ASSERT_EQ(fp8 ? widened(last_bytes[at], last_scales[at / kWidth]) : bf16_to_f32(last_bits[at]),
                    last[at]);
        EXPECT_EQ((*store)->read_states_stored(i, {25, 25, kCount}, to, to_last).code(),
                  StatusCode::kInvalidArgument);
      }
    }
}

TEST(StateCodec, Fp8IsWithinHalfAStep) {
  const StoreHeader header = header_of(StateEncoding::kFp8);
  const auto documents = alike(header, 2, 25);
  const std::string directory = test_directory();
  write_store(directory, header, documents, {.encoding = StateEncoding::kFp8});
  const auto store = StoreReader::open(directory);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const auto read = (*store)->read(i)->states;
    for (std::size_t row = 0; row < read.size(); row += 37) {
      float largest = 0;
      for (std::size_t k = 0; k < 37; ++k)
        largest = std::max(largest, std::fabs(bf16_to_f32(documents[i].states[row + k])));
      for (std::size_t k = 0; k < 37; ++k) {
        const float wanted = bf16_to_f32(documents[i].states[row + k]);
        // Half a step of three mantissa bits, a step of the smallest numbers, and the bf16 of the result.
        ASSERT_NEAR(bf16_to_f32(read[row + k]), wanted, std::fabs(wanted) * 0.067 + largest * 2e-5);
      }
    }
  }
}

TEST(StateCodec, DroppedRowsAreThoseNothingReads) {
  EXPECT_EQ(kept_rows({0, 0, 1, 1, 0, 1, 0, 0}, true).aux_rows, 5);
  EXPECT_THAT(kept_rows({0, 0, 1, 1, 0, 1, 0, 0}, true).last_tokens, ElementsAre(2, 3, 5));
  EXPECT_EQ(kept_rows({1, 0, 0}, true).aux_rows, 0);  // the first token is never predicted
  EXPECT_EQ(kept_rows({0, 0, 1}, false).aux_rows, 3);
  for (const StateEncoding encoding : {StateEncoding::kRaw, StateEncoding::kPlanes, StateEncoding::kFp8}) {
    const StoreHeader header = header_of(encoding);
    const auto documents = alike(header, 4, 30);
    const std::string whole = test_directory(std::string("whole-") + state_encoding_name(encoding));
    const std::string less = test_directory(std::string("less-") + state_encoding_name(encoding));
    write_store(whole, header, documents, {.encoding = encoding});
    write_store(less, header, documents, {.encoding = encoding, .drop_unsupervised = true});
    const auto a = StoreReader::open(whole), b = StoreReader::open(less);
    EXPECT_LT((*b)->bytes(), (*a)->bytes());
    EXPECT_TRUE((*b)->verify().ok()) << (*b)->verify().message();
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const auto all = (*a)->read(i)->states, some = (*b)->read(i)->states;
      const KeptRows kept = kept_rows(documents[i].loss_mask, true);
      for (std::int64_t t = 0; t < kept.tokens; ++t)
        for (std::int64_t slot = 0; slot < 3; ++slot) {
          const bool has = slot < 2 ? t < kept.aux_rows : t > 0 && documents[i].loss_mask[t] != 0;
          for (std::int64_t k = 0; k < 37; ++k) {
            const auto at = static_cast<std::size_t>((t * 3 + slot) * 37 + k);
            ASSERT_EQ(some[at], has ? all[at] : 0) << t << " " << slot;
          }
        }
    }
  }
}

TEST(StateCodec, AKilledLosslessShardGoesOnWithTheSameBeginning) {
  const StoreHeader header = header_of(StateEncoding::kPlanes);
  const auto documents = alike(header, 5, 40);
  const std::string directory = test_directory(), at_once = test_directory("at_once");
  const StoreWriterOptions options{.encoding = StateEncoding::kPlanes};
  write_store(at_once, header, documents, options);
  {
    auto writer = StoreWriter::open(directory, header, options);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*writer)->append(documents[i]).ok());
  }  // as if killed
  auto writer = StoreWriter::open(directory, header, options);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  EXPECT_EQ((*writer)->finished_ids().size(), 3u);
  for (int i = 3; i < 5; ++i) ASSERT_TRUE((*writer)->append(documents[i]).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  EXPECT_EQ(*read_file(directory + "/000000.shard"), *read_file(at_once + "/000000.shard"));
}

// Every byte of a packed record changed: the document, or an error.
TEST(StateCodec, DamagedPayloadsAreDataOrAnError) {
  for (const StateEncoding encoding : {StateEncoding::kPlanes, StateEncoding::kFp8}) {
    const StoreHeader header = header_of(encoding);
    const auto documents = alike(header, 2, 12);
    const PrefixBase base{documents[0].input_ids, documents[0].states};
    const auto form = static_cast<std::uint8_t>(encoding);
    const std::string good = *encode_states(header, form, documents[1], &base);
    std::vector<std::uint16_t> out(documents[1].states.size());
    const ReadBase read_base = [&](std::int64_t rows, std::vector<std::uint16_t>* states) {
      states->assign(base.states.begin(), base.states.begin() + rows * 3 * 37);
      return Status();
    };
    const auto decode = [&](const std::string& payload) {
      return decode_states(header, form, reinterpret_cast<const std::byte*>(payload.data()), payload.size(),
                           documents[1].loss_mask, 13, read_base, out.data());
    };
    ASSERT_TRUE(decode(good).ok());
    if (encoding == StateEncoding::kPlanes) {
      EXPECT_EQ(out, documents[1].states);
    }
    for (std::size_t at = 0; at < good.size(); ++at) {
      std::string changed = good;
      changed[at] ^= 0x11;
      (void)decode(changed);  // must come back: the record's checksum tells the rest
      if (at < 200) {
        EXPECT_FALSE(decode(good.substr(0, at)).ok());
      }
    }
  }
}

// Many rounds: a shard lost to another of its name, once in a hundred stores, was seen.
TEST(StateCodec, SeveralWritersFillOneStore) {
  const StoreHeader header = small_header();
  for (int round = 0; round < 100; ++round) {
    const std::string directory = test_directory() + "/" + std::to_string(round);
    std::vector<std::thread> writers;
    for (int w = 0; w < 3; ++w)
      writers.emplace_back([&, w] {
        auto writer = StoreWriter::open(directory, header, {.shard_bytes = 3000, .parallel = true});
        ASSERT_TRUE(writer.ok()) << writer.status().message();
        for (int i = 0; i < 20; ++i) {
          const Status appended = (*writer)->append(random_document(header, w * 100 + i, 10));
          ASSERT_TRUE(appended.ok()) << appended.message();
        }
        ASSERT_TRUE((*writer)->finish().ok());
      });
    for (std::thread& writer : writers) writer.join();
    const auto store = StoreReader::open(directory);
    ASSERT_TRUE(store.ok()) << store.status().message();
    ASSERT_EQ((*store)->documents().size(), 60u);
    EXPECT_TRUE((*store)->verify().ok());
  }
}

TEST(StateCodec, AParallelWriterTakesUpWhatADeadOneLeftAndLeavesTheLivingAlone) {
  const StoreHeader header = small_header();
  const std::string directory = test_directory();
  const StoreWriterOptions options{.parallel = true};
  auto living = StoreWriter::open(directory, header, options);
  ASSERT_TRUE((*living)->append(random_document(header, 1, 10)).ok());
  {
    auto dead = StoreWriter::open(directory, header, options);
    ASSERT_TRUE((*dead)->append(random_document(header, 2, 10)).ok());
  }
  EXPECT_EQ(StoreWriter::open(directory, header).status().code(), StatusCode::kBusy);
  auto next = StoreWriter::open(directory, header, options);
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_THAT((*next)->finished_ids(), ElementsAre("doc2"));
  ASSERT_TRUE((*next)->finish().ok());
  ASSERT_TRUE((*living)->finish().ok());
  EXPECT_EQ((*StoreReader::open(directory))->documents().size(), 2u);
}

// Several writers that died together and begin again together, as the ranks of a run do: nobody writes a
// document again that another of them took up.
TEST(StateCodec, WritersThatBeginAgainTogetherSeeWhatEachOtherTookUp) {
  const StoreHeader header = small_header();
  const StoreWriterOptions options{.parallel = true};
  const std::string directory = test_directory();
  for (int i = 0; i < 3; ++i) {
    auto dead = StoreWriter::open(directory, header, options);
    ASSERT_TRUE(dead.ok());
    for (int d = 0; d < i; ++d) ASSERT_TRUE((*dead)->append(random_document(header, 10 * i + d, 10)).ok());
  }
  std::vector<std::unique_ptr<StoreWriter>> again;
  for (int i = 0; i < 3; ++i) {
    auto writer = StoreWriter::open(directory, header, options);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    EXPECT_THAT((*writer)->finished_ids(), UnorderedElementsAre("doc10", "doc20", "doc21"));
    ASSERT_TRUE((*writer)->append(random_document(header, 100 + i, 10)).ok());
    again.push_back(std::move(*writer));
  }
  for (const auto& writer : again) ASSERT_TRUE(writer->finish().ok());
  const auto store = StoreReader::open(directory);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->documents().size(), 6u);
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
}

}  // namespace
}  // namespace eaglet
