#include "vocab/draft_vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "formats/json.h"
#include "formats/safetensors.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kCase07 = EAGLET_TESTDATA "/cases/07-draft-vocabulary-larger-than-data/";
const std::string kCase12 = EAGLET_TESTDATA "/cases/12-draft-to-target-map-forms/";

struct Counted {
  std::vector<std::int64_t> counts;
  std::vector<std::int32_t> special, end;
};

Counted case_07() {
  const Json file = *read_json_file(kCase07 + "token_counts.json");
  Counted counted;
  counted.counts.assign(file["target_vocab_size"].get<std::size_t>(), 0);
  for (const auto& [id, count] : file["counts"].items())
    counted.counts[std::stoul(id)] = count.get<std::int64_t>();
  counted.special = file["special_token_ids"].get<std::vector<std::int32_t>>();
  counted.end = {file["eos_token_id"].get<std::int32_t>()};
  return counted;
}

TEST(DraftVocab, MoreSlotsThanSeenTokens) {
  const Counted c = case_07();
  const auto vocab = choose_draft_vocab(c.counts, c.special, c.end, 24);
  ASSERT_TRUE(vocab.ok()) << vocab.status().message();
  // 17 seen, 60-63 special, and 0, 1, 3 as the smallest unused ids.
  EXPECT_THAT(vocab->target_ids, ElementsAre(0, 1, 2, 3, 5, 9, 11, 13, 16, 19, 20, 26, 29, 31, 33, 37, 40, 44,
                                             52, 58, 60, 61, 62, 63));
  EXPECT_EQ(covered_share(*vocab, c.counts), 1.0);
  const auto d2t = vocab->d2t_offsets();
  const auto t2d = vocab->t2d_flags();
  ASSERT_EQ(d2t.size(), 24u);
  ASSERT_EQ(t2d.size(), 64u);
  EXPECT_EQ(std::count(t2d.begin(), t2d.end(), 1), 24);
  for (std::size_t i = 0; i < d2t.size(); ++i) EXPECT_EQ(t2d[i + static_cast<std::size_t>(d2t[i])], 1);
  EXPECT_EQ(choose_draft_vocab(c.counts, c.special, c.end, 24)->target_ids, vocab->target_ids);
}

TEST(DraftVocab, SmallVocabularyKeepsSpecialIdsAndBreaksTiesByTheLowerId) {
  const Counted c = case_07();
  const auto vocab = choose_draft_vocab(c.counts, c.special, c.end, 11);
  ASSERT_TRUE(vocab.ok());
  EXPECT_THAT(vocab->target_ids, ElementsAre(2, 5, 9, 11, 13, 16, 19, 60, 61, 62, 63));
  const double all = 40 + 33 + 31 + 30 + 22 + 20 + 18 + 18 + 9 + 7 + 7 + 4 + 3 + 3 + 2 + 1 + 1;
  EXPECT_DOUBLE_EQ(covered_share(*vocab, c.counts), (40 + 33 + 31 + 30 + 22 + 20 + 18) / all);
}

TEST(DraftVocab, FewerSlotsThanSpecialIds) {
  Counted c = case_07();
  EXPECT_THAT(choose_draft_vocab(c.counts, c.special, c.end, 1)->target_ids, ElementsAre(61));
  c.counts[63] = 5;
  EXPECT_THAT(choose_draft_vocab(c.counts, c.special, c.end, 3)->target_ids, ElementsAre(60, 61, 63));
}

TEST(DraftVocab, WholeVocabularyIsTheIdentity) {
  const Counted c = case_07();
  const auto vocab = choose_draft_vocab(c.counts, c.special, c.end, 64);
  ASSERT_TRUE(vocab.ok());
  EXPECT_TRUE(vocab->is_full());
  EXPECT_EQ(vocab->d2t_offsets(), std::vector<std::int64_t>(64, 0));
  EXPECT_EQ(vocab->target_to_draft()[63], 63);
}

TEST(DraftVocab, OutOfRangeIsRefused) {
  const Counted c = case_07();
  for (const std::int64_t size : {-1, 0, 65}) {
    const auto vocab = choose_draft_vocab(c.counts, c.special, c.end, size);
    EXPECT_EQ(vocab.status().code(), StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(vocab.status().message(), HasSubstr("from 1 to 64"));
  }
  EXPECT_EQ(choose_draft_vocab(c.counts, {64}, c.end, 8).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(choose_draft_vocab(c.counts, c.special, {-1}, 8).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(choose_draft_vocab({1, -1}, {}, {}, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(choose_draft_vocab({}, {}, {}, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(DraftVocab, NothingCountedFillsFromTheSmallest) {
  const auto vocab = choose_draft_vocab(std::vector<std::int64_t>(10, 0), {}, {7}, 4);
  EXPECT_THAT(vocab->target_ids, ElementsAre(0, 1, 2, 7));
  EXPECT_EQ(covered_share(*vocab, std::vector<std::int64_t>(10, 0)), 1.0);
}

Result<DraftVocab> from_file(const std::string& path, bool* ascending = nullptr) {
  EAGLET_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int64_t> d2t, file.read_i64("d2t"));
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int64_t> t2d, file.read_i64("t2d"));
  EAGLET_ASSIGN_OR_RETURN(DraftVocab vocab,
                          vocab_from_offsets(d2t, static_cast<std::int64_t>(t2d.size()), ascending));
  EAGLET_RETURN_IF_ERROR(check_t2d(vocab, t2d));
  return vocab;
}

TEST(DraftVocabMap, OffsetsAreRead) {
  bool ascending = false;
  const auto vocab = from_file(kCase12 + "a_offset/model.safetensors", &ascending);
  ASSERT_TRUE(vocab.ok()) << vocab.status().message();
  EXPECT_TRUE(ascending);
  EXPECT_THAT(vocab->target_ids, ElementsAre(0, 1, 2, 3, 5, 6, 8, 9, 11, 13, 16, 19, 20, 22, 26, 29, 31, 33,
                                             37, 40, 44, 52, 60, 63));
  bool again = false;
  EXPECT_EQ(vocab_from_offsets(vocab->d2t_offsets(), 64, &again)->target_ids, vocab->target_ids);
}

TEST(DraftVocabMap, AbsoluteIdsAndZerosAreRefused) {
  const auto absolute = from_file(kCase12 + "map_b_absolute.safetensors");
  EXPECT_EQ(absolute.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(absolute.status().what(), HasSubstr("outside the target vocabulary of 64"));
  const auto in_range = from_file(kCase12 + "map_c_absolute_in_range.safetensors");
  EXPECT_EQ(in_range.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(in_range.status().what(), HasSubstr("disagree"));
  const auto zero = from_file(kCase12 + "map_d_zero.safetensors");
  EXPECT_EQ(zero.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(zero.status().what(), HasSubstr("disagree"));
}

TEST(DraftVocabMap, UnsortedIsReadInItsOrder) {
  bool ascending = true;
  const auto vocab = vocab_from_offsets({5, 0, -2}, 8, &ascending);
  ASSERT_TRUE(vocab.ok());
  EXPECT_FALSE(ascending);
  EXPECT_THAT(vocab->target_ids, ElementsAre(5, 1, 0));
  EXPECT_EQ(vocab->target_to_draft()[5], 0);
}

TEST(DraftVocabMap, DamageIsRefused) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(vocab_from_offsets({}, 8, nullptr).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(vocab_from_offsets({0, huge}, 8, nullptr).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(vocab_from_offsets({-1}, 8, nullptr).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(vocab_from_offsets({1, 0}, 8, nullptr).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(vocab_from_offsets({0, 0, 0}, 2, nullptr).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(vocab_from_offsets({0}, 0, nullptr).status().code(), StatusCode::kInvalidArgument);
  const DraftVocab vocab{3, {0, 2}};
  EXPECT_TRUE(check_t2d(vocab, {1, 0, 1}).ok());
  EXPECT_FALSE(check_t2d(vocab, {1, 0}).ok());
  EXPECT_FALSE(check_t2d(vocab, {1, 1, 1}).ok());
}

}  // namespace
}  // namespace eaglet
