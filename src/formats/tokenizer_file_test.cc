#include "formats/tokenizer_file.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/test_directory.h"
#include "formats/byte_alphabet.h"
#include "formats/tokenizer_config.h"
#include "formats/tokenizer_hash.h"

namespace eaglet {
namespace {

const std::string kTokenizers = EAGLET_TESTDATA "/tokenizers";

std::string model_of(const std::string& inside) {
  return R"({"added_tokens": [], "model": {"type": "BPE", )" + inside + "}}";
}

TEST(TokenizerFile, KeepsTheLongListsApart) {
  const auto file = parse_tokenizer_file(
      R"({"added_tokens": [{"id": 2, "content": "<s>", "lstrip": true, "special": true}], "decoder": {"type": "Fuse"},
          "model": {"merges": ["a b", ["ab", "c d"]], "vocab": {"a": 0, "b": 1, "<s>": 2}, "unk_token": null},
          "merges": [1, {"vocab": [2]}]})");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->vocab, (std::vector<std::pair<std::string, std::int32_t>>{{"a", 0}, {"b", 1}, {"<s>", 2}}));
  EXPECT_EQ(file->merges, (std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"ab", "c d"}}));
  ASSERT_EQ(file->added.size(), 1u);
  EXPECT_EQ(file->added[0].text, "<s>");
  EXPECT_TRUE(file->added[0].lstrip && file->added[0].special && !file->added[0].normalized);
  EXPECT_EQ(file->rest["decoder"]["type"], "Fuse");
  EXPECT_EQ(file->rest["merges"][1]["vocab"][0], 2);  // of the same name, but not the model's
  EXPECT_FALSE(file->rest["model"].contains("vocab"));
}

TEST(TokenizerFile, SaysWhatIsWrong) {
  const std::pair<std::string, const char*> broken[] = {
      {"", "not valid JSON"},
      {"[]", "it has no model"},
      {R"({"model": {"vocab": {"a": "x"}}})", "model.vocab holds something that is no id"},
      {R"({"model": {"vocab": {"a": {}}}})", "model.vocab holds something that is no id"},
      {R"({"model": {"vocab": {"a": -1}}})", "model.vocab holds something that is no id"},
      {model_of(R"("merges": ["a"])"), "merge 1 is not two texts"},
      {model_of(R"("merges": ["a b c"])"), "merge 1 is not two texts"},
      {model_of(R"("merges": ["a b", ["a"]])"), "merge 2 is not a pair"},
      {model_of(R"("merges": [["a", "b", "c"]])"), "merge 2 is not a pair"},
      {model_of(R"("merges": [3])"), "model.merges holds something that is no text"},
      {model_of(R"("merges": [[["a"]]])"), "model.merges holds something that is no text"},
      {R"({"model": {}, "added_tokens": [{"content": "x"}]})", "added token 1 has no id"},
      {R"({"model": {}, "added_tokens": {}})", "added_tokens is not a list"},
      {std::string(100, '['), "nested deeper"},
  };
  for (const auto& [text, what] : broken) {
    const auto file = parse_tokenizer_file(text);
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_EQ(file.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(file.status().what().find(what), std::string::npos) << file.status().what();
  }
}

/// Cut at every byte a file is damaged, and said to be.
TEST(TokenizerFile, CutAnywhereIsAnError) {
  const std::string json = *read_file(kTokenizers + "/metaspace/tokenizer.json");
  const std::string whole = json.substr(0, json.find_last_of('}') + 1);
  ASSERT_TRUE(parse_tokenizer_file(whole).ok());
  for (std::size_t bytes = 0; bytes < whole.size();
       bytes += bytes < 2000 || bytes + 50 > whole.size() ? 1 : 97)
    EXPECT_FALSE(parse_tokenizer_file(whole.substr(0, bytes)).ok()) << bytes;
}

TEST(TokenizerFile, TiktokenRanksAreTheIds) {
  const auto tokens = parse_tiktoken_file("IQ== 0\nIg== 1\r\n4pmlIQ== 2");
  ASSERT_TRUE(tokens.ok()) << tokens.status().message();
  EXPECT_EQ(*tokens, (std::vector<std::string>{"!", "\"", "\xe2\x99\xa5!"}));
  for (const char* text : {"", "IQ==", "IQ== 1", "I*== 0", "IQ== 0\nIg== 2", " 0", "IQ== 0 "})
    EXPECT_FALSE(parse_tiktoken_file(text).ok()) << text;
}

TEST(ByteAlphabet, EachByteHasOneCharacter) {
  std::string all, written;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
    written += byte_character(static_cast<std::uint8_t>(byte));
  }
  EXPECT_EQ(bytes_of_characters(written), all);
  EXPECT_EQ(byte_character(' '), "\u0120");
  EXPECT_EQ(byte_character('\n'), "\u010a");
  EXPECT_EQ(byte_character(0xad), "\u0143");
  for (const char* text : {" ", "\u0144", "\u2581", "\xc4", "a\xff"})
    EXPECT_EQ(bytes_of_characters(text), std::nullopt);
}

TEST(TokenizerConfig, FilesOfTheirOwnWin) {
  const std::string dir = test_directory();
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(dir + "/" + name, text).ok());
  };
  auto config = read_tokenizer_config(dir);
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->bos_token.empty() && config->chat_template.empty());
  write("special_tokens_map.json", R"({"bos_token": "<b>", "eos_token": {"content": "<no>"}})");
  write("tokenizer_config.json", R"({"eos_token": {"content": "<e>"}, "bos_token": null,
      "chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}],
      "added_tokens_decoder": {"7": {"content": "<e>", "special": true}, "8": {"content": "x"}}})");
  config = read_tokenizer_config(dir);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->bos_token + config->eos_token, "<b><e>");
  EXPECT_EQ(config->chat_template + config->tool_template, "plaintools");
  EXPECT_TRUE(config->added_tokens[7].special && !config->added_tokens[8].special);
  write("chat_template.jinja", "its own file");
  EXPECT_EQ(read_tokenizer_config(dir)->chat_template, "its own file");
  for (const char* text :
       {"[]", "{", R"({"split_special_tokens": true})", R"({"added_tokens_decoder": {"x": {}}})"}) {
    write("tokenizer_config.json", text);
    EXPECT_FALSE(read_tokenizer_config(dir).ok()) << text;
  }
}

}  // namespace
}  // namespace eaglet
