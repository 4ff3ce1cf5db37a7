#include "generate/thinking.h"

#include <algorithm>
#include <numeric>

namespace eaglet {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// Number of tokens that lie wholly or partly before byte `at`.
std::size_t tokens_before(const std::vector<std::string>& pieces, std::size_t at) {
  std::size_t bytes = 0, token = 0;
  while (token < pieces.size() && bytes < at) bytes += pieces[token++].size();
  return token;
}

}  // namespace

SplitAnswer split_answer(const std::vector<std::string>& pieces, const RenderedPrompt& prompt) {
  SplitAnswer split;
  split.text = std::accumulate(pieces.begin(), pieces.end(), std::string());
  split.content = split.text;
  if (prompt.thinking_start.empty()) return split;
  std::size_t begin = 0, inside = 0;
  if (!prompt.thinking_is_open) {
    begin = split.text.find(prompt.thinking_start);
    // Only an answer that opens with the marker thinks; later it is text about markers.
    if (begin == std::string::npos || !trimmed(split.text.substr(0, begin)).empty()) return split;
    inside = begin + prompt.thinking_start.size();
  }
  std::size_t end = std::string::npos, after = split.text.size();
  for (const std::string& marker : prompt.thinking_ends) {
    const std::size_t at = split.text.find(marker, inside);
    if (at >= end) continue;
    end = at;
    after = at + marker.size();
  }
  split.reasoning = trimmed(split.text.substr(inside, end == std::string::npos ? end : end - inside));
  split.content = trimmed(split.text.substr(after));
  split.reasoning_begin = tokens_before(pieces, begin);
  split.reasoning_end = tokens_before(pieces, after);
  return split;
}

}  // namespace eaglet
