#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/files.h"
#include "base/interrupt.h"
#include "base/rng.h"
#include "store/shard_reader.h"
#include "store/shard_writer.h"
#include "store/store_test_helpers.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Store, WhatIsWrittenIsRead) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  std::vector<DocumentStates> documents;
  for (int i = 0; i < 9; ++i) documents.push_back(random_document(header, i, 1 + i * 7));
  write_store(directory, header, documents);

  const auto reader = StoreReader::open(directory);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const StoreReader& store = **reader;
  EXPECT_EQ(store.header(), header);
  ASSERT_EQ(store.documents().size(), documents.size());
  for (std::size_t i = 0; i < documents.size(); ++i) {
    expect_same_document(*store.read(i), documents[i]);
    const auto tokens = store.read_tokens(i);
    ASSERT_TRUE(tokens.ok());
    EXPECT_EQ(tokens->input_ids, documents[i].input_ids);
    EXPECT_TRUE(tokens->states.empty());
    const StoredDocument& told = store.documents()[i];
    EXPECT_EQ(told.id, documents[i].id);
    const auto& mask = documents[i].loss_mask;
    EXPECT_EQ(told.tokens, static_cast<std::int64_t>(mask.size()));
    EXPECT_EQ(told.supervised_tokens, std::count(mask.begin(), mask.end(), 1));
    EXPECT_EQ(told.first_supervised, std::find(mask.begin(), mask.end(), 1) - mask.begin());
  }
  EXPECT_TRUE(store.verify().ok());
  EXPECT_EQ(store.read(documents.size()).status().code(), StatusCode::kInvalidArgument);
}

// Written by the first version of this format (see the README beside it); must be readable for ever.
TEST(Store, Version1IsStillRead) {
  const auto reader = StoreReader::open(EAGLET_TESTDATA "/store/v1");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ((*reader)->header(), small_header());
  EXPECT_TRUE((*reader)->verify().ok());
  ASSERT_EQ((*reader)->documents().size(), 3u);
  for (int i = 0; i < 3; ++i)
    expect_same_document(*(*reader)->read(static_cast<std::size_t>(i)),
                         random_document(small_header(), i, 1 + i));
}

TEST(Store, StatesAsFp32AreTheStoredOnes) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  const DocumentStates document = random_document(header, 3, 11);
  write_store(directory, header, {document});
  const auto reader = StoreReader::open(directory);
  ASSERT_TRUE(reader.ok());
  const std::int64_t aux_width = 2 * header.hidden, row = 3 * header.hidden;
  std::vector<float> aux(10 * aux_width), last(10 * header.hidden);
  ASSERT_TRUE((*reader)->read_states_f32(0, {0, 1, 10}, aux.data(), last.data()).ok());
  for (std::int64_t t = 0; t < 10; ++t) {
    for (std::int64_t h = 0; h < aux_width; ++h)
      ASSERT_EQ(aux[t * aux_width + h], bf16_to_f32(document.states[t * row + h]));
    for (std::int64_t h = 0; h < header.hidden; ++h)
      ASSERT_EQ(last[t * header.hidden + h], bf16_to_f32(document.states[(t + 1) * row + aux_width + h]));
  }
  EXPECT_EQ((*reader)->read_states_f32(0, {0, 2, 10}, aux.data(), last.data()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ((*reader)->read_states_f32(0, {-1, 0, 1}, aux.data(), last.data()).code(),
            StatusCode::kInvalidArgument);
}

TEST(Store, ShardsRollAndTheNextRunGoesOn) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  std::vector<DocumentStates> documents;
  for (int i = 0; i < 12; ++i) documents.push_back(random_document(header, i, 20));
  {
    auto writer = StoreWriter::open(directory, header, {.shard_bytes = 4000});
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (int i = 0; i < 7; ++i) ASSERT_TRUE((*writer)->append(documents[i]).ok());
    ASSERT_TRUE((*writer)->flush().ok());
    // Finished shards can be read beside the writer.
    const auto reader = StoreReader::open(directory);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_GT((*reader)->documents().size(), 0u);
    EXPECT_LT((*reader)->documents().size(), 7u);
  }  // as if killed: no finish()
  auto writer = StoreWriter::open(directory, header, {.shard_bytes = 4000});
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  EXPECT_THAT((*writer)->finished_ids(), SizeIs(7));
  EXPECT_THAT((*writer)->recovery_notes(), IsEmpty());
  EXPECT_EQ((*writer)->append(documents[3]).code(), StatusCode::kInvalidArgument);
  for (int i = 7; i < 12; ++i) ASSERT_TRUE((*writer)->append(documents[i]).ok());
  ASSERT_TRUE((*writer)->finish().ok());

  const std::string undisturbed = test_directory("undisturbed");
  write_store(undisturbed, header, documents, 4000);
  const auto names = *list_directory(directory);
  EXPECT_GT(names.size(), 3u);
  EXPECT_EQ(names, *list_directory(undisturbed));
  for (const std::string& name : names)
    if (name != ".lock") {
      EXPECT_EQ(*read_file(directory + "/" + name), *read_file(undisturbed + "/" + name)) << name;
    }
}

TEST(Store, UnfinishedShardCutAtEveryByteKeepsTheWholeDocuments) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  std::vector<DocumentStates> documents;
  std::vector<std::uint64_t> ends;  // of the header, then of each document
  const std::string unfinished = directory + "/000000.shard.tmp";
  for (int i = 0; i < 3; ++i) documents.push_back(random_document(header, i, 2 + i));
  {
    auto writer = StoreWriter::open(directory, header);
    for (const DocumentStates& document : documents) {
      ASSERT_TRUE((*writer)->append(document).ok());
      ends.push_back(*file_bytes(unfinished));
    }
  }
  const std::string whole = *read_file(unfinished);
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    write_raw(unfinished, whole.substr(0, length));
    auto writer = StoreWriter::open(directory, header);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    const auto kept =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), length) - ends.begin());
    ASSERT_EQ((*writer)->finished_ids().size(), kept) << length;
    if (length == whole.size()) {
      EXPECT_THAT((*writer)->recovery_notes(), IsEmpty());
    } else if (kept > 0 && length != ends[kept - 1]) {
      EXPECT_THAT((*writer)->recovery_notes(), ElementsAre(HasSubstr("cut")));
    }
    // And the writer goes on behind what it kept.
    for (std::size_t i = kept; i < documents.size(); ++i) ASSERT_TRUE((*writer)->append(documents[i]).ok());
    ASSERT_EQ(*read_file(unfinished), whole) << length;
  }
}

TEST(Store, UnfinishedShardWithAnyByteChangedLosesOnlyWhatFollows) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  const std::string unfinished = directory + "/000000.shard.tmp";
  {
    auto writer = StoreWriter::open(directory, header);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE((*writer)->append(random_document(header, i, 3)).ok());
  }
  const std::string whole = *read_file(unfinished);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    write_raw(unfinished, damaged);
    auto writer = StoreWriter::open(directory, header);
    if (!writer.ok()) {  // another version: not ours to throw away
      ASSERT_EQ(writer.status().code(), StatusCode::kConfig) << at;
      continue;
    }
    ASSERT_LT((*writer)->finished_ids().size(), 2u) << at;
    ASSERT_THAT((*writer)->recovery_notes(), SizeIs(1)) << at;
  }
}

TEST(Store, OtherTargetOrLayersAreRefusedNamingBoth) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  write_store(directory, header, {random_document(header, 0, 4)});
  StoreHeader other = header;
  other.target_identity = "ffffffffffffffff";
  auto writer = StoreWriter::open(directory, other);
  EXPECT_EQ(writer.status().code(), StatusCode::kConfig);
  EXPECT_THAT(writer.status().what(), HasSubstr("ffffffffffffffff"));
  EXPECT_THAT(writer.status().what(), HasSubstr("0123456789abcdef"));
  other = header;
  other.aux_layers = {2, 5};
  writer = StoreWriter::open(directory, other);
  EXPECT_EQ(writer.status().code(), StatusCode::kConfig);
  EXPECT_THAT(writer.status().what(), HasSubstr("[2, 5]"));
  EXPECT_THAT(writer.status().what(), HasSubstr("[2, 3]"));
  other = header;
  other.last_state_is_pre_norm = false;
  EXPECT_EQ(StoreWriter::open(directory, other).status().code(), StatusCode::kConfig);
  other = header;
  other.target_name = "renamed";
  EXPECT_TRUE(StoreWriter::open(directory, other).ok());

  // Shards of two targets in one directory.
  other.target_identity = "ffffffffffffffff";
  const std::string second = test_directory("second");
  write_store(second, other, {random_document(other, 1, 4)});
  std::filesystem::copy_file(second + "/000000.shard", directory + "/000001.shard");
  EXPECT_EQ(StoreReader::open(directory).status().code(), StatusCode::kConfig);
}

TEST(Store, OneWriterPerDirectory) {
  const std::string directory = test_directory();
  const auto first = StoreWriter::open(directory, small_header());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(StoreWriter::open(directory, small_header()).status().code(), StatusCode::kBusy);
}

TEST(Store, MalformedDocumentsAreRefusedAndLeaveNoTrace) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  auto writer = StoreWriter::open(directory, header);
  ASSERT_TRUE((*writer)->append(random_document(header, 0, 5)).ok());
  const auto refused = [&](StatusCode code, auto change) {
    DocumentStates document = random_document(header, 1, 5);
    change(document);
    const Status status = (*writer)->append(document);
    EXPECT_EQ(status.code(), code) << status.message();
    return status.message();
  };
  const auto invalid = StatusCode::kInvalidArgument;
  refused(invalid, [](DocumentStates& d) { d.id.clear(); });
  refused(invalid, [](DocumentStates& d) { d.id.assign(70000, 'x'); });
  refused(invalid, [](DocumentStates& d) { d.loss_mask.pop_back(); });
  refused(invalid, [](DocumentStates& d) { d.loss_mask[0] = 2; });
  refused(invalid, [](DocumentStates& d) { d.input_ids[1] = -1; });
  refused(invalid, [](DocumentStates& d) { d.states.pop_back(); });
  refused(invalid, [](DocumentStates& d) { d = DocumentStates{"empty", {}, {}, {}}; });
  const std::size_t row = static_cast<std::size_t>(header.slots() * header.hidden);
  EXPECT_THAT(refused(StatusCode::kNumeric,
                      [&](DocumentStates& d) { d.states[3 * row + 2 * header.hidden] = 0x7fc0; }),
              HasSubstr("token 3, slot 2 of 3 holds a NaN"));
  EXPECT_THAT(refused(StatusCode::kNumeric, [](DocumentStates& d) { d.states[0] = 0xff80; }),
              HasSubstr("infinity"));
  ASSERT_TRUE((*writer)->append(random_document(header, 1, 5)).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  EXPECT_EQ((*writer)->append(random_document(header, 2, 5)).code(), StatusCode::kInternal);
  EXPECT_EQ((*StoreReader::open(directory))->documents().size(), 2u);
}

TEST(Store, FullDiskKeepsFinishedDocuments) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  auto writer = StoreWriter::open(directory, header);
  ASSERT_TRUE((*writer)->append(random_document(header, 0, 10)).ok());
  const std::uint64_t before = *file_bytes(directory + "/000000.shard.tmp");
  {
    const FileSizeLimit limit(before + 300);  // inside the next document
    const Status full = (*writer)->append(random_document(header, 1, 40));
    EXPECT_EQ(full.code(), StatusCode::kNoSpace) << full.message();
    EXPECT_THAT(full.where(), HasSubstr("000000.shard.tmp"));
    EXPECT_EQ(*file_bytes(directory + "/000000.shard.tmp"), before);
  }
  {
    const FileSizeLimit limit(before + 20);  // inside the directory
    EXPECT_EQ((*writer)->finish().code(), StatusCode::kNoSpace);
    EXPECT_EQ(*file_bytes(directory + "/000000.shard.tmp"), before);
  }
  ASSERT_TRUE((*writer)->append(random_document(header, 1, 40)).ok());  // there is space again
  ASSERT_TRUE((*writer)->finish().ok());
  const auto reader = StoreReader::open(directory);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_TRUE((*reader)->verify().ok());
  EXPECT_EQ((*reader)->documents().size(), 2u);
}

TEST(Store, NothingThereIsSaid) {
  EXPECT_EQ(StoreReader::open("/nonexistent/store").status().code(), StatusCode::kNotFound);
  const std::string directory = test_directory();
  EXPECT_EQ(StoreReader::open(directory).status().code(), StatusCode::kNotFound);
  {
    auto writer = StoreWriter::open(directory, small_header());
    ASSERT_TRUE((*writer)->append(random_document(small_header(), 0, 3)).ok());
  }
  EXPECT_THAT(StoreReader::open(directory).status().todo(), HasSubstr("extract command again"));
  StoreHeader header = small_header();
  header.dtype = Dtype::kF8E4M3;
  EXPECT_EQ(StoreWriter::open(directory, header).status().code(), StatusCode::kConfig);
  header = small_header();
  header.aux_layers.clear();
  EXPECT_EQ(StoreWriter::open(directory, header).status().code(), StatusCode::kInvalidArgument);
}

TEST(Store, LeftoversNobodyCanExplainAreNotTouched) {
  const std::string directory = test_directory();
  write_store(directory, small_header(), {random_document(small_header(), 0, 3)});
  write_raw(directory + "/000000.shard.tmp", "x");
  EXPECT_EQ(StoreWriter::open(directory, small_header()).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(path_exists(directory + "/000000.shard.tmp"));
}

TEST(Store, SameDocumentInTwoShardsIsRefused) {
  const std::string directory = test_directory();
  write_store(directory, small_header(), {random_document(small_header(), 0, 3)});
  std::filesystem::copy_file(directory + "/000000.shard", directory + "/000001.shard");
  const auto reader = StoreReader::open(directory);
  EXPECT_EQ(reader.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(reader.status().what(), HasSubstr("twice"));
}

TEST(Store, RemovedShardIsMadeAnewUnderANewNumber) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  std::vector<DocumentStates> documents;
  for (int i = 0; i < 6; ++i) documents.push_back(random_document(header, i, 20));
  write_store(directory, header, documents, 2000);
  const std::size_t shards = list_directory(directory)->size();
  ASSERT_TRUE(remove_all(directory + "/000000.shard").ok());
  auto writer = StoreWriter::open(directory, header, {.shard_bytes = 2000});
  ASSERT_TRUE(writer.ok());
  const auto& have = (*writer)->finished_ids();
  EXPECT_LT(have.size(), documents.size());
  for (const DocumentStates& document : documents)
    if (std::find(have.begin(), have.end(), document.id) == have.end()) {
      ASSERT_TRUE((*writer)->append(document).ok());
    }
  ASSERT_TRUE((*writer)->finish().ok());
  writer->reset();
  EXPECT_EQ(list_directory(directory)->size(), shards);
  EXPECT_EQ((*StoreReader::open(directory))->documents().size(), documents.size());
}

TEST(Store, ManyThreadsReadTheSame) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  std::vector<DocumentStates> documents;
  for (int i = 0; i < 20; ++i) documents.push_back(random_document(header, i, 5 + i));
  write_store(directory, header, documents, 5000);
  const auto reader = StoreReader::open(directory);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Rng rng(7, static_cast<std::uint64_t>(t));
      for (int n = 0; n < 300; ++n) {
        const auto i = static_cast<std::size_t>(rng.below(documents.size()));
        const auto document = (*reader)->read(i);
        if (!document.ok() || document->states != documents[i].states) ++wrong[t];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace eaglet
