#include "formats/tokenizer_file.h"
#include "fuzz_input.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace eaglet;

// Expressions of published tokenizers stand in for what an input says: how Oniguruma reads any expression is
// not ours to test.
constexpr const char* kExpressions[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([\p{Han}]+|[\p{Lu}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|\s+)", R"(\p{N}{1,3})", R"(x*)", R"([^#]+)"};

void mend_expressions(Json* json, std::size_t* count) {
  if (!json->is_structured()) return;
  for (auto& [key, value] : json->items()) {
    if (key == "Regex") value = kExpressions[(*count)++ % std::size(kExpressions)];
    mend_expressions(&value, count);
  }
}

void use(const Tokenizer& tokenizer, const std::string& text) {
  for (const TextPlace place : {TextPlace::kStart, TextPlace::kContinues}) {
    const auto ids = tokenizer.encode(text, place);
    if (!ids.ok()) continue;
    for (const std::int32_t id : *ids) {
      promise(id >= 0);
      (void)tokenizer.piece(id);
    }
    const auto again = tokenizer.encode(text, place);  // now from the pieces already seen
    promise(again.ok() && *again == *ids);
  }
}

}  // namespace

// A tokenizer file and a text, with a zero byte between them. A file that begins with a letter other than
// JSON could is a tiktoken one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string input(as_text(data, bytes));
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string text = input.substr(std::min(end + 1, input.size()));
  if (input.find_first_of("{[ \n") != 0) {
    const auto ranks = parse_tiktoken_file(input.substr(0, end));
    if (!ranks.ok()) return 0;
    const auto tokenizer = Tokenizer::from_ranks(*ranks, kExpressions[1], {"<|end|>", "<|en"});
    if (tokenizer.ok()) use(**tokenizer, text);
    return 0;
  }
  auto file = parse_tokenizer_file(input.substr(0, end));
  if (!file.ok()) return 0;
  std::size_t count = 0;
  mend_expressions(&file->rest, &count);
  const auto tokenizer = Tokenizer::from_file(*file);
  if (tokenizer.ok()) use(**tokenizer, text);
  return 0;
}
