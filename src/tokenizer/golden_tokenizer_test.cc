#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "formats/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

const std::string kTokenizers = EAGLET_TESTDATA "/tokenizers";

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// The sample: about 50 scripts, code, emoji, numbers, white space, special tokens; then bytes that are no
/// UTF-8.
std::vector<std::string> sample_texts() {
  const Json json = *read_json_file(kTokenizers + "/texts.json");
  std::vector<std::string> texts = json["texts"].get<std::vector<std::string>>();
  for (const Json& hex : json["bytes"]) texts.push_back(bytes_of_hex(hex.get<std::string>()));
  return texts;
}

std::vector<std::string> tokenizer_families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kTokenizers))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenTokenizer : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTokenizer, GivesTheReferencesIds) {
  const std::string folder = kTokenizers + "/" + GetParam();
  const Json golden = *read_json_file(folder + "/golden.json");
  const auto tokenizer = Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->size(), golden["size"].get<std::int32_t>());
  EXPECT_EQ((*tokenizer)->frame().before, golden["before"].get<std::vector<std::int32_t>>());
  EXPECT_EQ((*tokenizer)->frame().behind, golden["behind"].get<std::vector<std::int32_t>>());
  const std::vector<std::string> texts = sample_texts();
  ASSERT_EQ(texts.size(), golden["ids"].size());
  std::size_t tokens = 0;
  for (const bool again : {false, true})  // the second time pieces come from those already seen
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto ids = (*tokenizer)->encode(texts[i]);
      ASSERT_TRUE(ids.ok()) << ids.status().message();
      EXPECT_EQ(*ids, golden["ids"][i].get<std::vector<std::int32_t>>())
          << "text " << i << ": " << texts[i] << again;
      tokens += ids->size();
    }
  EXPECT_GT(tokens, 5000u);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTokenizer, testing::ValuesIn(tokenizer_families()),
                         [](const auto& family) { return family.param; });

TEST(GoldenTokenizer, ThereAreAllFamilies) {
  EXPECT_EQ(tokenizer_families().size(), 14u);
}

/// Of a byte-level tokenizer without normalisation the tokens' bytes are the text again.
TEST(GoldenTokenizer, PiecesGiveTheTextBack) {
  for (const char* family : {"gpt2", "smollm", "llama3", "deepseek_v3", "o200k", "kimi_json", "kimi"}) {
    const auto tokenizer = Tokenizer::load(kTokenizers + "/" + family);
    ASSERT_TRUE(tokenizer.ok());
    for (std::string text : sample_texts()) {
      std::string back, mended;
      const auto ids = (*tokenizer)->encode(text);
      ASSERT_TRUE(ids.ok());
      for (const std::int32_t id : *ids) back += (*tokenizer)->piece(id);
      if (!is_utf8(text, &mended)) text = mended;
      EXPECT_EQ(back, text) << family;
    }
  }
}

}  // namespace
}  // namespace eaglet
