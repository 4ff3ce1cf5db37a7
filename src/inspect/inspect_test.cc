#include "inspect/inspect.h"

#include <ggml.h>
#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/files.h"
#include "base/interrupt.h"
#include "draft/draft_weights.h"
#include "formats/safetensors.h"
#include "inspect/number_check.h"
#include "store/store_test_helpers.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kCases = EAGLET_TESTDATA "/cases/";

Result<Inspection> look(const std::string& path, bool verify = true, std::int64_t vocab_size = 0) {
  NoProgress silent;
  return inspect({path, verify, vocab_size}, silent);
}

std::string fresh_file(const std::string& name, const std::string& content) {
  const std::string path = test_directory() + "/" + name;
  write_raw(path, content);
  return path;
}

TEST(Inspect, StateFilesOfOthers) {
  const std::string folder = kCases + "09-unusable-state-files/";
  EXPECT_THAT(look(folder + "hs_0.safetensors")->problems, ElementsAre(HasSubstr("NaN at [5, 2, ")));
  EXPECT_THAT(look(folder + "hs_1.safetensors")->problems, ElementsAre(HasSubstr("infinity at [0, 3, ")));
  const auto zeros = look(folder + "hs_2.safetensors");
  EXPECT_THAT(zeros->problems, IsEmpty());
  EXPECT_THAT(zeros->doubts, ElementsAre(HasSubstr("slot 3 is zero")));
  for (const char* name : {"hs_3", "hs_4", "hs_5"})
    EXPECT_EQ(look(folder + name + ".safetensors").status().code(), StatusCode::kDataLoss) << name;
  const auto good = look(folder + "hs_6.safetensors");
  EXPECT_THAT(good->problems, IsEmpty());
  EXPECT_THAT(good->doubts, IsEmpty());
  EXPECT_EQ(good->facts["holds"], "hidden states of one document");
  EXPECT_THAT(look(folder + "hs_0.safetensors", false)->problems,
              IsEmpty());  // numbers are read only when asked to
  EXPECT_THAT(look(kCases + "08-state-rows-do-not-match-tokens/hs_0.safetensors", false)->problems,
              ElementsAre(HasSubstr("12 token ids but 8 rows")));
}

TEST(Inspect, Store) {
  const std::string directory = test_directory();
  const StoreHeader header = small_header();
  std::vector<DocumentStates> documents;
  for (int i = 0; i < 5; ++i) documents.push_back(random_document(header, i, 10));
  write_store(directory, header, documents, 1000);
  const auto good = look(directory);
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->facts["kind"], "state store");
  EXPECT_EQ(good->facts["documents"], 5);
  EXPECT_EQ(good->facts["tokens"], 50);
  EXPECT_EQ(good->facts["aux_layers"], Json({2, 3}));
  EXPECT_EQ(good->facts["verified"], true);
  EXPECT_GT(good->facts["shards"].size(), 1u);
  EXPECT_THAT(good->problems, IsEmpty());
  EXPECT_THAT(look(directory, true, 3)->problems,
              testing::Contains(HasSubstr("outside the vocabulary of 3")));
  EXPECT_EQ(look(directory + "/000000.shard")->facts["kind"], "shard of a state store");

  const std::string shard = directory + "/000001.shard";
  const std::string bytes = *read_file(shard);
  poke(shard, bytes.size() / 2, static_cast<char>(bytes[bytes.size() / 2] ^ 1));
  EXPECT_THAT(look(directory)->problems, ElementsAre(HasSubstr("000001.shard: document ")));
  EXPECT_THAT(look(directory, false)->problems, IsEmpty());
  write_raw(shard, bytes.substr(0, bytes.size() - 5));
  const auto cut = look(directory);
  ASSERT_TRUE(cut.ok());  // the other shards still have something to tell
  EXPECT_THAT(cut->problems, ElementsAre(HasSubstr("000001.shard: the shard has no directory")));
  EXPECT_EQ(look(shard).status().code(), StatusCode::kDataLoss);
}

TEST(Inspect, UnfinishedAndOddStores) {
  const std::string directory = test_directory();
  DocumentStates document = random_document(small_header(), 0, 4);
  for (int token = 0; token < 4; ++token)
    for (int i = 0; i < 5; ++i) document.states[static_cast<std::size_t>(token * 15 + 5 + i)] = 0;
  write_store(directory, small_header(), {document});
  EXPECT_THAT(look(directory)->doubts, ElementsAre(HasSubstr("slot 1 of 3 is zero")));
  auto writer = StoreWriter::open(directory, small_header());
  ASSERT_TRUE((*writer)->append(random_document(small_header(), 1, 4)).ok());
  EXPECT_THAT(look(directory, false)->doubts, ElementsAre(HasSubstr("000001.shard.tmp is unfinished")));
  write_raw(directory + "/000009.shard.tmp", *read_file(directory + "/000001.shard.tmp") + "half a document");
  const auto unfinished = look(directory + "/000009.shard.tmp");
  ASSERT_TRUE(unfinished.ok()) << unfinished.status().message();
  EXPECT_EQ(unfinished->facts["whole_documents"], 1);
  EXPECT_EQ(unfinished->facts["bytes_after_them"], 15);
}

TEST(Inspect, ConversationsAndPrompts) {
  const std::string row = R"({"id":"a","input_ids":[1,9],"loss_mask":[0,1],"finish_reason":"stop"})";
  const std::string path = fresh_file("rows.txt", "{broken\n" + row + "\n");
  const auto rows = look(path, true, 9);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ(rows->facts["kind"], "conversations");
  EXPECT_EQ(rows->facts["usable"], 1);
  EXPECT_EQ(rows->facts["broken_lines"], 1);
  EXPECT_EQ(rows->facts["supervised_tokens"], 1);
  EXPECT_EQ(rows->facts["finished_with_stop"], 1);
  EXPECT_THAT(rows->problems, ElementsAre(HasSubstr("line 1"), HasSubstr("token id 9 is outside")));
  const auto prompts = look(kCases + "04-odd-conversations/conversations.jsonl");
  ASSERT_TRUE(prompts.ok());
  EXPECT_EQ(prompts->facts["kind"], "prompts");
}

TEST(Inspect, DraftDirectory) {
  const auto draft = look(kCases + "12-draft-to-target-map-forms/a_offset");
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  EXPECT_EQ(draft->facts["kind"], "draft");
  EXPECT_EQ(draft->facts["draft_vocab"], 24);
  EXPECT_EQ(draft->facts["vocab"], 64);
  EXPECT_THAT(draft->problems, IsEmpty());
  EXPECT_EQ(look(kCases + "12-draft-to-target-map-forms/a_offset/config.json")->facts["kind"],
            "draft configuration");
}

/// A draft as a GGUF: a map and one tensor of floats.
std::string write_gguf(const std::vector<std::int64_t>& d2t, const std::vector<float>& values) {
  const std::string path = test_directory() + "/draft.gguf";
  gguf_context* file = gguf_init_empty();
  ggml_context* memory = ggml_init({1 << 20, nullptr, false});
  gguf_set_val_str(file, "general.architecture", "eagle3");
  gguf_set_val_u32(file, "eagle3.vocab_size", 64);
  gguf_set_val_bool(file, "eagle3.norm_before_fc", true);
  const std::int32_t layers[] = {2, 3};
  gguf_set_arr_data(file, "eagle3.target_layers", GGUF_TYPE_INT32, layers, 2);
  ggml_tensor* map = ggml_new_tensor_1d(memory, GGML_TYPE_I64, static_cast<std::int64_t>(d2t.size()));
  std::memcpy(map->data, d2t.data(), d2t.size() * 8);
  ggml_set_name(map, "d2t");
  gguf_add_tensor(file, map);
  ggml_tensor* norm = ggml_new_tensor_1d(memory, GGML_TYPE_F32, static_cast<std::int64_t>(values.size()));
  std::memcpy(norm->data, values.data(), values.size() * 4);
  ggml_set_name(norm, "output_norm.weight");
  gguf_add_tensor(file, norm);
  gguf_write_to_file(file, path.c_str(), false);
  gguf_free(file);
  ggml_free(memory);
  return path;
}

TEST(Inspect, Gguf) {
  const std::string path = write_gguf({1, 5, 63}, {1.0f, 2.0f});
  const auto good = look(path);
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->facts["kind"], "GGUF");
  EXPECT_EQ(good->facts["architecture"], "eagle3");
  EXPECT_EQ(good->facts["usable_as_target"], false);
  EXPECT_EQ(good->facts["aux_layers"], Json({2, 3}));
  EXPECT_EQ(good->facts["draft_vocab"], 3);
  EXPECT_EQ(good->facts["tensor_types"]["I64"], 1);
  EXPECT_EQ(good->facts["keys"][2]["value"], "true");
  EXPECT_THAT(good->problems, IsEmpty());
  EXPECT_THAT(look(write_gguf({1, 64}, {1.0f}))->problems, ElementsAre(HasSubstr("d2t: ")));
  EXPECT_THAT(look(write_gguf({5, 5}, {1.0f}))->problems, ElementsAre(HasSubstr("d2t: two draft ids")));
  EXPECT_THAT(look(write_gguf({1}, {1.0f, std::numeric_limits<float>::infinity()}))->problems,
              ElementsAre(HasSubstr("output_norm.weight: a weight is not finite")));
}

TEST(Inspect, WhatIsNoFileOfOursIsSaid) {
  EXPECT_EQ(look("/nonexistent/file").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(look(test_directory()).status().code(), StatusCode::kNotFound);
  for (const std::string& content :
       {std::string(), std::string("hello\n"), std::string(1000, '\0'), std::string("{}"),
        std::string("{\"a\":1}\n[]\n"), std::string(100, '\xff')}) {
    const auto unknown = look(fresh_file("what.bin", content));
    EXPECT_EQ(unknown.status().code(), StatusCode::kDataLoss) << content;
  }
  const std::string run = test_directory("run");
  std::filesystem::create_directory(run + "/states");
  EXPECT_THAT(look(run).status().todo(), HasSubstr("states"));
}

TEST(Inspect, ASignalStopsIt) {
  const std::string directory = test_directory();
  write_store(directory, small_header(), {random_document(small_header(), 0, 4)});
  set_interrupt_for_test(2);
  const StatusCode code = look(directory).status().code();
  set_interrupt_for_test(0);
  EXPECT_EQ(code, StatusCode::kInterrupted);
}

TEST(NumberCheck, EveryType) {
  const auto check = [](Dtype dtype, auto values) {
    return check_numbers(dtype, reinterpret_cast<const std::byte*>(values.data()),
                         static_cast<std::int64_t>(values.size()));
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  std::vector<float> many(10000, 1.0f);
  EXPECT_FALSE(check(Dtype::kF32, many).first_not_finite);
  many[9001] = nan;
  EXPECT_EQ(check(Dtype::kF32, many).first_not_finite, 9001);
  EXPECT_TRUE(check(Dtype::kF32, many).first_is_nan);
  many[3] = -infinity;
  EXPECT_EQ(check(Dtype::kF32, many).first_not_finite, 3);
  EXPECT_FALSE(check(Dtype::kF32, many).first_is_nan);
  EXPECT_EQ(check(Dtype::kF16, std::vector<std::uint16_t>{0, 0x7c00}).first_not_finite, 1);
  EXPECT_EQ(check(Dtype::kBF16, std::vector<std::uint16_t>{0x7f80}).first_not_finite, 0);
  EXPECT_EQ(check(Dtype::kF64, std::vector<double>{1.0, 2.0, nan}).first_not_finite, 2);
  EXPECT_EQ(check(Dtype::kF8E4M3, std::vector<std::uint8_t>{0x7e, 0xff}).first_not_finite, 1);
  EXPECT_EQ(check(Dtype::kF8E5M2, std::vector<std::uint8_t>{0x7b, 0x7c}).first_not_finite, 1);
  EXPECT_FALSE(check(Dtype::kI64, std::vector<std::int64_t>{-1}).first_not_finite);
  EXPECT_TRUE(check(Dtype::kF32, std::vector<float>{0.0f, -0.0f}).all_zero);
  EXPECT_FALSE(check(Dtype::kI32, std::vector<std::int32_t>{0, 1}).all_zero);
  EXPECT_TRUE(check(Dtype::kF8E4M3, std::vector<std::uint8_t>{0, 0x80}).all_zero);
  EXPECT_EQ(place_in({10, 4, 8}, 5 * 32 + 2 * 8 + 1), "[5, 2, 1]");
  EXPECT_EQ(place_in({}, 0), "[]");
}

}  // namespace
}  // namespace eaglet
