#include "formats/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "formats/torch_pickle.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kValues = EAGLET_TESTDATA "/states/values/";

std::vector<std::byte> bytes_of(const std::string& path) {
  const std::string text = *read_file(path);
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return std::vector<std::byte>(data, data + text.size());
}

TEST(TorchFile, ReadsWhatTorchSaveWrote) {
  const auto file = TorchFile::open(kValues + "mixed.pt");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const TorchValue& root = file->root();
  EXPECT_THAT(*TorchFile::read_i64(root.find("whole")->tensor),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  const TorchTensor& columns = root.find("columns")->tensor;  // a transposed part: strided
  EXPECT_FALSE(columns.contiguous());
  EXPECT_THAT(*TorchFile::read_i64(columns), ElementsAre(1, 5, 9, 2, 6, 10));
  EXPECT_THAT(*TorchFile::read_f32(root.find("half")->tensor), ElementsAre(0.5f, -2.0f));
  EXPECT_THAT(*TorchFile::read_i64(root.find("byte")->tensor), ElementsAre(1, 255));
  EXPECT_EQ(root.find("e4m3")->tensor.dtype, Dtype::kF8E4M3);
  EXPECT_TRUE(root.find("scalar")->tensor.shape.empty());
  EXPECT_EQ(root.find("none")->kind, TorchValue::Kind::kNone);
  EXPECT_EQ(root.find("yes")->integer, 1);
  EXPECT_EQ(root.find("large")->integer, std::int64_t{1} << 40);
  EXPECT_EQ(root.find("small")->integer, -3);
  EXPECT_EQ(root.find("text")->text, "a");
  ASSERT_EQ(root.find("pair")->items.size(), 2u);
  EXPECT_EQ(root.find("pair")->items[1]->number, 2.5);
  EXPECT_EQ(root.find("nobody"), nullptr);
}

TEST(TorchFile, CountersAndStateDictsAreDicts) {
  for (const char* name : {"token_freq.pt", "counter.pt"}) {
    const auto file = TorchFile::open(kValues + name);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_EQ(file->root().items.size(), 3u);
    EXPECT_EQ(file->root().items[1]->integer, 2);
    EXPECT_EQ(file->root().values[1]->integer, 40);
  }
  const auto state = TorchFile::open(kValues + "state_dict.pt");
  ASSERT_TRUE(state.ok()) << state.status().message();
  EXPECT_EQ(state->root().find("weight")->tensor.elements(), 2);
}

TEST(TorchFile, CodeIsRefusedByItsName) {
  const auto module = TorchFile::open(kValues + "module.pt");
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.status().code(), StatusCode::kConfig);
  EXPECT_THAT(module.status().message(), HasSubstr("torch.nn.modules.linear.Linear"));
  const auto old = TorchFile::open(kValues + "old_form.pt");
  EXPECT_EQ(old.status().code(), StatusCode::kConfig);
  EXPECT_THAT(old.status().message(), HasSubstr("before 1.6"));
}

// What a hostile file would hold: each is refused by name, and nothing is looked up.
TEST(TorchFile, APickleThatRunsACommandIsRefusedByName) {
  const FindStorage none = [](const std::string&) -> Result<TorchStorage> {
    return Status(StatusCode::kDataLoss, "no storage");
  };
  const auto refusal = [&](const std::string& code) {
    std::deque<TorchValue> nodes;
    const auto value = run_torch_pickle(code, none, &nodes);
    return value.ok() ? std::string("taken") : value.status().what();
  };
  const std::string start = "\x80\x02";
  EXPECT_THAT(refusal(start + "cos\nsystem\n\x8c\x02id\x85R."), HasSubstr("os.system"));
  EXPECT_THAT(refusal("\x80\x04\x8c\x08"
                      "builtins\x8c\x04"
                      "eval\x93\x8c\x01"
                      "1\x85R."),
              HasSubstr("builtins.eval"));
  EXPECT_THAT(refusal(start + "cos\nsystem\n."), HasSubstr("os.system"));    // the name alone
  EXPECT_THAT(refusal(start + "]cos\nsystem\na."), HasSubstr("os.system"));  // inside a list
  EXPECT_THAT(refusal(start + "]N\x81."), HasSubstr("opcode 0x81"));         // NEWOBJ
  EXPECT_THAT(refusal(start + "h\x05."), HasSubstr("never remembered"));
  EXPECT_THAT(refusal(start + "e."), HasSubstr("mark"));
  EXPECT_THAT(refusal(start), HasSubstr("ends in the middle"));
  std::string recalls = start + "]q\x01";
  for (int i = 0; i < (1 << 20) + 1; ++i) recalls += "h\x01";
  EXPECT_THAT(refusal(recalls), HasSubstr("under way"));
  EXPECT_EQ(refusal(start + "]q\x01h\x01"
                            "a."),
            "taken");  // a list that holds itself is data
}

TEST(TorchFile, CutOrChangedAnywhereIsDataOrAnError) {
  const std::vector<std::byte> good = bytes_of(kValues + "vocab_mapping.pt");
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_FALSE(
        TorchFile::parse(
            std::vector<std::byte>(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)), "cut")
            .ok())
        << bytes;
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> changed = good;
    changed[at] ^= std::byte{0x40};
    refused += TorchFile::parse(changed, "changed").ok() ? 0 : 1;
  }
  EXPECT_GT(refused, static_cast<int>(good.size() / 2));
}

TEST(TorchFile, WhatWeWriteReadsBack) {
  const std::string directory = test_directory();
  ASSERT_TRUE(write_torch_counts(directory + "/c.pt", {{2, 40}, {5, std::int64_t{1} << 40}}).ok());
  const auto counts = TorchFile::open(directory + "/c.pt");
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_EQ(counts->root().values[1]->integer, std::int64_t{1} << 40);
  ASSERT_TRUE(write_torch_list(directory + "/l.pt", {3, 70000, -1}).ok());
  const auto list = TorchFile::open(directory + "/l.pt");
  ASSERT_TRUE(list.ok()) << list.status().message();
  EXPECT_EQ(list->root().items[2]->integer, -1);
  const std::int64_t numbers[] = {7, -8};
  ASSERT_TRUE(
      write_torch_tensors(directory + "/t.pt",
                          {{"d2t", Dtype::kI64, {2}, std::string(reinterpret_cast<const char*>(numbers), 16)},
                           {"t2d", Dtype::kBool, {3}, std::string("\1\0\1", 3)}})
          .ok());
  const auto tensors = TorchFile::open(directory + "/t.pt");
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_THAT(*TorchFile::read_i64(tensors->root().find("d2t")->tensor), ElementsAre(7, -8));
  EXPECT_THAT(*TorchFile::read_i64(tensors->root().find("t2d")->tensor), ElementsAre(1, 0, 1));
}

TEST(TorchFile, PackedByGzip) {
  const auto file = TorchFile::open_gzip(EAGLET_TESTDATA "/states/specforge/rows_0-2000/data_2.ckpt.gz");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->root().find("input_ids")->tensor.elements(), 12);
  EXPECT_EQ(TorchFile::open_gzip(EAGLET_TESTDATA "/states/specforge/rows_0-2000/data_2.ckpt.gz", 100)
                .status()
                .code(),
            StatusCode::kNoSpace);
  EXPECT_EQ(TorchFile::open_gzip(kValues + "mixed.pt").status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace eaglet
