#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <regex.h>

#include "base/files.h"
#include "base/test_directory.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

const std::string kFamilies = EAGLET_TESTDATA "/tokenizers";

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const std::string& json) {
  auto file = parse_tokenizer_file(json);
  if (!file.ok()) return file.status();
  return Tokenizer::from_file(*file);
}

/// A tokenizer of the letters a and b, with further members.
std::string letters(const std::string& further, const std::string& model = "") {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])" + model + "}" +
         further + "}";
}

TEST(Tokenizer, RefusesByNameWhatItDoesNotKnow) {
  const std::pair<std::string, const char*> unknown[] = {
      {R"({"model": {"type": "Unigram", "vocab": [["a", -1.5]]}})", "a tokenizer of kind \"Unigram\""},
      {R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})", "a tokenizer of kind \"WordPiece\""},
      {letters("", R"(, "end_of_word_suffix": "</w>")"), "end_of_word_suffix"},
      {letters("", R"(, "dropout": 0.1)"), "dropout"},
      {letters(R"(, "normalizer": {"type": "BertNormalizer"})"), "normalizer BertNormalizer"},
      {letters(
           R"(, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})"),
       "normalizer Lowercase"},
      {letters(R"(, "pre_tokenizer": {"type": "Whitespace"})"), "pre-tokenizer Whitespace"},
      {letters(
           R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})"),
       "pre-tokenizer Digits behind a ByteLevel"},
      {letters(R"(, "pre_tokenizer": {"type": "Split", "behavior": "Odd", "pattern": {"String": "x"}})"),
       "behavior Odd"},
      {letters(R"(, "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(x"}})"),
       "regular expression of the tokenizer is not usable"},
      {letters(R"(, "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})"),
       "prepend_scheme last"},
      {letters(R"(, "decoder": {"type": "CTC"})"), "decoder CTC"},
      {letters(R"(, "post_processor": {"type": "BertProcessing"})"), "post-processor BertProcessing"},
  };
  for (const auto& [json, what] : unknown) {
    const auto tokenizer = tokenizer_of(json);
    ASSERT_FALSE(tokenizer.ok()) << json;
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kConfig) << tokenizer.status().message();
    EXPECT_NE(tokenizer.status().what().find(what), std::string::npos) << tokenizer.status().what();
  }
}

TEST(Tokenizer, RefusesDamagedFiles) {
  const std::pair<std::string, const char*> damaged[] = {
      {R"({"model": {"type": "BPE", "vocab": {}}})", "vocabulary is empty"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a x"]}})", "needs the token \"x\""},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}})",
       "needs the token \"ab\""},
      {R"({"model": {"type": "BPE", "vocab": {"a": 200000000}}})", "beyond any vocabulary"},
      {letters(R"(, "added_tokens": [{"id": 7, "content": "<s>"}])"),
       "says id 7, by its place it would get 3"},
      {letters(R"(, "added_tokens": [{"id": 1, "content": "a"}])"), "says id 1, by its place it would get 0"},
      {letters(
           R"(, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]})"),
       "names a token without ids"},
      {letters(R"(, "post_processor": {"type": "TemplateProcessing", "single": []})"),
       "no place for the text"},
      {letters(R"(, "normalizer": {"type": "Prepend"})"), "Prepend has no prepend"},
  };
  for (const auto& [json, what] : damaged) {
    const auto tokenizer = tokenizer_of(json);
    ASSERT_FALSE(tokenizer.ok()) << json;
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kDataLoss) << tokenizer.status().message();
    EXPECT_NE(tokenizer.status().what().find(what), std::string::npos) << tokenizer.status().what();
  }
}

TEST(Tokenizer, AFolderWithoutTokenizerIsNamed) {
  const std::string dir = test_directory();
  EXPECT_EQ(Tokenizer::load(dir).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(write_file_atomic(dir + "/tiktoken.model", "IQ== 0\n").ok());
  const auto other = Tokenizer::load(dir);
  EXPECT_EQ(other.status().code(), StatusCode::kConfig);
  EXPECT_NE(other.status().what().find("pattern is not known"), std::string::npos);
}

/// A pattern that needs endless steps ends with an error, not never.
TEST(Tokenizer, HopelessPatternsEnd) {
  const auto tokenizer = tokenizer_of(letters(
      R"(, "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(?:a|aa)+cd"}})"));
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = (*tokenizer)->encode(std::string(60, 'a') + "xcd");
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument) << ids.ok();
}

/// What goes on from a prompt gets no space of its own, in every way a file can ask for one.
TEST(Tokenizer, ContinuedTextsGetNoPrefix) {
  for (const char* family : {"llama2", "mistral", "metaspace", "gpt2_prefix"}) {
    const auto tokenizer = Tokenizer::load(kFamilies + "/" + family);
    ASSERT_TRUE(tokenizer.ok());
    const auto text_of = [&](const std::string& text, TextPlace place) {
      std::string back;
      const auto ids = (*tokenizer)->encode(text, place);
      for (const std::int32_t id : *ids) back += (*tokenizer)->piece(id);
      return back;
    };
    EXPECT_EQ(text_of("The lazy dog", TextPlace::kStart), " The lazy dog") << family;
    EXPECT_EQ(text_of("The lazy dog", TextPlace::kContinues), "The lazy dog") << family;
  }
}

TEST(Tokenizer, VeryLongPiecesTakeNoQuadraticTime) {
  const auto tokenizer = Tokenizer::load(kFamilies + "/llama3");
  ASSERT_TRUE(tokenizer.ok());
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "abcab"[i % 5];
  std::string back;
  const auto ids = (*tokenizer)->encode(text);
  ASSERT_TRUE(ids.ok());
  for (const std::int32_t id : *ids) back += (*tokenizer)->piece(id);
  EXPECT_EQ(back, text);
}

TEST(Tokenizer, KnowsItsTokens) {
  const auto tokenizer = Tokenizer::load(kFamilies + "/llama3");
  ASSERT_TRUE(tokenizer.ok());
  const std::int32_t end = (*tokenizer)->id_of("<|im_end|>");
  EXPECT_EQ(end, 3);
  EXPECT_TRUE((*tokenizer)->is_special(end) && !(*tokenizer)->is_special((*tokenizer)->id_of("a")));
  EXPECT_EQ((*tokenizer)->piece(end), "<|im_end|>");
  EXPECT_EQ((*tokenizer)->piece((*tokenizer)->id_of("\u0120the")), " the");
  EXPECT_EQ((*tokenizer)->id_of("no such token"), -1);
  EXPECT_EQ((*tokenizer)->piece(-1) + (*tokenizer)->piece(640), "");
}

TEST(Utf8, MendsEachMaximalSubpart) {
  const std::pair<const char*, const char*> cases[] = {{"a\xff", "a\ufffd"},
                                                       {"\xe2\x82", "\ufffd"},
                                                       {"\xe2\x82x", "\ufffdx"},
                                                       {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
                                                       {"\xf0\x9f\x98", "\ufffd"},
                                                       {"\xc0\xaf", "\ufffd\ufffd"},
                                                       {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"}};
  for (const auto& [text, want] : cases) {
    std::string mended;
    EXPECT_FALSE(is_utf8(text, &mended));
    EXPECT_EQ(mended, want);
  }
  std::string untouched = "x";
  EXPECT_TRUE(is_utf8("h\u00e9 \U0001f600", &untouched));
  EXPECT_EQ(untouched, "x");
}

TEST(Unicode, EveryCharacterKeepsItsLength) {
  std::size_t newer = 0;
  for (std::uint32_t point = 1; point < 0x110000; ++point) {
    if (point == 0xd800) point = 0xe000;
    std::string text;
    append_utf8(point, &text);
    ASSERT_EQ(utf8_at(text, 0).point, point);
    const std::string seen = text_for_patterns(text);
    if (seen.empty()) continue;
    ++newer;
    ASSERT_EQ(seen.size(), text.size()) << point;
    ASSERT_TRUE(text_for_patterns(seen).empty()) << point;
  }
  EXPECT_GT(newer, 10000u);
}

// The library of our patterns has functions of these names too, and they are not the C library's.
TEST(SplitPattern, OthersStillGetTheCLibrarysRegularExpressions) {
  regex_t regex;
  ASSERT_EQ(regcomp(&regex, "a = 7 +#", REG_EXTENDED | REG_NOSUB), 0);
  EXPECT_EQ(regexec(&regex, "x\na = 7       # y", 0, nullptr, 0), 0);
  EXPECT_EQ(regexec(&regex, "a = 8 #", 0, nullptr, 0), REG_NOMATCH);
  regfree(&regex);
}

}  // namespace
}  // namespace eaglet
