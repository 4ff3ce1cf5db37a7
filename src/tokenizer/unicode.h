#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace eaglet {

// The reference (the tokenizers library) knows other versions of Unicode than the libraries we link: newer
// ones for its regular expressions, an older one for normalisation. Where they differ, tables of ours
// (unicode_tables.inc) decide.

/// The text as our regular expressions must see it: characters that only the reference's know are replaced by
/// others of the same category, script and length in bytes. Empty when there is none in it. Valid UTF-8.
std::string text_for_patterns(std::string_view text);

/// Does the Digits pre-tokenizer take it for a digit?
bool is_numeric(std::uint32_t point);
bool is_white_space(std::uint32_t point);

/// No normalisation of the reference touches it, or anything because of it.
bool is_plain_in_normalisation(std::uint32_t point);

}  // namespace eaglet
