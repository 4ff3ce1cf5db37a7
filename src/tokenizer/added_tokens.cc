#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

bool is_word_character(std::uint32_t point) {
  static const Result<SplitPattern> word = SplitPattern::regex("\\w");
  std::string text;
  append_utf8(point, &text);
  const std::string seen = text_for_patterns(text);
  // The reference asks another library here, for which the two joiners are parts of words.
  return point == 0x200c || point == 0x200d || (word.ok() && word->matches_start(seen.empty() ? text : seen));
}

bool stands_alone(std::string_view text, TextRange range) {
  return (range.begin == 0 || !is_word_character(utf8_last(text.substr(0, range.begin)).point)) &&
         (range.end == text.size() || !is_word_character(utf8_at(text, range.end).point));
}

std::size_t before_white_space(std::string_view text, std::size_t end) {
  while (end > 0) {
    const Utf8Character last = utf8_last(text.substr(0, end));
    if (!is_white_space(last.point)) break;
    end -= last.bytes;
  }
  return end;
}

std::size_t behind_white_space(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Utf8Character next = utf8_at(text, begin);
    if (!is_white_space(next.point)) break;
    begin += next.bytes;
  }
  return begin;
}

}  // namespace

std::int32_t AddedTokenFinder::child(std::int32_t node, unsigned char byte) const {
  for (const auto& [key, next] : nodes_[static_cast<std::size_t>(node)].next)
    if (key == byte) return next;
  return -1;
}

void AddedTokenFinder::add(const AddedToken& token, const std::string& spelling) {
  if (spelling.empty()) return;
  std::int32_t node = 0;
  for (const char c : spelling) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_[static_cast<std::size_t>(node)].next.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  // Of two with one spelling the first counts, as in the reference.
  Node& last = nodes_[static_cast<std::size_t>(node)];
  if (last.token >= 0) return;
  last.token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  begins_[static_cast<unsigned char>(spelling[0])] = true;
}

std::int32_t AddedTokenFinder::longest_at(std::string_view text, std::size_t at, std::size_t* end) const {
  std::int32_t node = 0, found = -1;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = child(node, static_cast<unsigned char>(text[i]));
    if (node < 0) break;
    if (nodes_[static_cast<std::size_t>(node)].token < 0) continue;
    found = nodes_[static_cast<std::size_t>(node)].token;
    *end = i + 1;
  }
  return found;
}

std::vector<TextPart> AddedTokenFinder::split(std::string_view text) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = 0;
    const std::int32_t found =
        begins_[static_cast<unsigned char>(text[at])] ? longest_at(text, at, &end) : -1;
    if (found < 0) {
      ++at;
      continue;
    }
    TextRange range = {at, end};
    at = end;  // also where the token does not count: nothing is looked for inside it
    const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
    if (token.single_word && !stands_alone(text, range)) continue;
    if (token.lstrip) range.begin = std::max(before_white_space(text, range.begin), done);
    if (token.rstrip) range.end = behind_white_space(text, range.end);
    if (done < range.begin) parts.push_back({{done, range.begin}, -1});
    parts.push_back({range, token.id});
    done = range.end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
  return parts;
}

}  // namespace eaglet
