#include "tokenizer/split_pattern.h"

#define ONIG_ESCAPE_REGEX_T_COLLISION  // its regex_t is not the C library's
#include <oniguruma.h>

#include <mutex>

#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

const OnigUChar* onig_bytes(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

void start_onig_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
}

struct FreeRegion {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};

std::string onig_error(int code, OnigErrorInfo* info) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length =
      info != nullptr ? onig_error_code_to_str(text, code, info) : onig_error_code_to_str(text, code);
  return std::string(reinterpret_cast<const char*>(text), static_cast<std::size_t>(length));
}

}  // namespace

Result<SplitPattern> SplitPattern::regex(const std::string& expression) {
  start_onig_once();
  SplitPattern pattern;
  OnigRegex regex = nullptr;
  OnigErrorInfo info = {};
  const OnigUChar* begin = onig_bytes(expression);
  const int code = onig_new(&regex, begin, begin + expression.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                            ONIG_SYNTAX_DEFAULT, &info);
  if (code != ONIG_NORMAL)
    return Status(StatusCode::kConfig,
                  "a regular expression of the tokenizer is not usable: " + onig_error(code, &info),
                  expression.substr(0, 200));
  pattern.regex_.reset(regex, onig_free);
  return pattern;
}

SplitPattern SplitPattern::plain(std::string text) {
  SplitPattern pattern;
  pattern.plain_ = std::move(text);
  return pattern;
}

Status SplitPattern::find_all(std::string_view text, std::vector<TextRange>* matches) const {
  matches->clear();
  if (regex_ == nullptr) {
    if (plain_.empty()) return {};
    for (std::size_t at = text.find(plain_); at != text.npos; at = text.find(plain_, at + plain_.size()))
      matches->push_back({at, at + plain_.size()});
    return {};
  }
  thread_local const std::unique_ptr<OnigRegion, FreeRegion> region(onig_region_new());
  const OnigUChar* begin = onig_bytes(text);
  const OnigUChar* end = begin + text.size();
  std::size_t at = 0;
  while (at <= text.size()) {
    const int found = onig_search(regex_.get(), begin, end, begin + at, end, region.get(), ONIG_OPTION_NONE);
    if (found == ONIG_MISMATCH) return {};
    if (found < 0)
      return Status(
          StatusCode::kInvalidArgument,
          "the tokenizer's regular expression cannot be run on the text: " + onig_error(found, nullptr));
    const TextRange match = {static_cast<std::size_t>(region->beg[0]),
                             static_cast<std::size_t>(region->end[0])};
    if (match.begin == match.end && !matches->empty() && matches->back().end == match.end) {
      at += at < text.size() ? utf8_at(text, at).bytes : 1;
      continue;
    }
    at = match.end;
    matches->push_back(match);
  }
  return {};
}

bool SplitPattern::matches_start(std::string_view text) const {
  const OnigUChar* begin = onig_bytes(text);
  return regex_ != nullptr &&
         onig_match(regex_.get(), begin, begin + text.size(), begin, nullptr, ONIG_OPTION_NONE) >= 0;
}

}  // namespace eaglet
