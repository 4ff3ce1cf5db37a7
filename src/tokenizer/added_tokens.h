#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/tokenizer_file.h"
#include "tokenizer/split_pattern.h"

namespace eaglet {

/// A part of a text: an added token, or (id -1) what is still to be cut.
struct TextPart {
  TextRange range;
  std::int32_t id = -1;
};

/// Finds added tokens in texts: the leftmost, of those the longest, never two over one another.
class AddedTokenFinder {
 public:
  AddedTokenFinder() : nodes_(1) {}
  /// `spelling`: what stands in the text where the token is.
  void add(const AddedToken& token, const std::string& spelling);
  bool empty() const { return tokens_.empty(); }
  /// Parts that cover `text`, in order; a token's may reach into white space beside it.
  std::vector<TextPart> split(std::string_view text) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> next;
    std::int32_t token = -1;  // place in tokens_ of one that ends here
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;
  std::int32_t longest_at(std::string_view text, std::size_t at, std::size_t* end) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> begins_ = {};  // does a token begin with this byte?
  std::vector<AddedToken> tokens_;
};

}  // namespace eaglet
