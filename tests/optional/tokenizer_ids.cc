// tokenizer_ids FOLDER                 lines of JSON texts on stdin become lines of ids
// tokenizer_ids FOLDER --time FILE N   the lines of FILE, N times over: tokens and seconds of CPU time
//
// A developer's tool for comparing with the tokenizers library (tests/optional/tokenizer_peer.py). Not part
// of the product; built by the target of this name.

#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>

#include "base/files.h"
#include "formats/json.h"
#include "tokenizer/tokenizer.h"

namespace {

template <class T>
T must(eaglet::Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

void measure(const eaglet::Tokenizer& tokenizer, const std::string& path, int times) {
  const std::string text = must(eaglet::read_file(path));
  std::size_t tokens = 0;
  const std::clock_t start = std::clock();
  for (int i = 0; i < times; ++i)
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      tokens += must(tokenizer.encode(std::string_view(text).substr(at, end - at))).size();
      at = end + 1;
    }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%zu tokens %.3f s %.0f tokens/s\n", tokens, seconds, static_cast<double>(tokens) / seconds);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 5) return 64;
  const std::clock_t start = std::clock();
  const auto tokenizer = must(eaglet::Tokenizer::load(argv[1]));
  if (argc == 5) {
    std::printf("loaded in %.3f s\n", static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    measure(*tokenizer, argv[3], std::atoi(argv[4]));
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = must(eaglet::parse_json(line)).get<std::string>();
    std::printf("%s\n", eaglet::json_line(eaglet::Json(must(tokenizer->encode(text)))).c_str());
  }
  return 0;
}
