#include "formats/row_reasons.h"

#include <fmt/format.h>

#include <utility>

namespace eaglet {
namespace {

/// First match wins: what the message holds, what it is counted as.
constexpr std::pair<const char*, const char*> kGroups[] = {
    {"same id and content", "duplicate"},
    {"was used by an earlier line", "id used twice"},
    {"chat template", "not rendered by the template"},
    {"rendered turn", "not rendered by the template"},
    {"says nothing", "assistant says nothing"},
    {"tool call", "broken tool call"},
    {"not valid JSON", "not valid JSON"},
    {"not usable JSON", "not valid JSON"},
    {"nested deeper", "not valid JSON"},
    {"unknown role", "unknown role"},
    {"without a role", "unknown role"},
    {"nothing to learn", "nothing to learn"},
    {"nothing to answer", "nothing to answer"},
    {"is empty", "no turns"},
    {"must be a list", "not a list of turns"},
    {"length limit", "cut by the length limit"},
    {"nothing supervised", "nothing supervised"},
    {"has no end: the answer was cut", "cut while thinking"},
    {"no text", "content that is no text"},
    {"no content", "content that is no text"},
    {"neither turns", "no turns"},
    {"token id", "token ids of another model"},
};

}  // namespace

std::string reason_group(const std::string& reason) {
  for (const auto& [needle, group] : kGroups)
    if (reason.find(needle) != std::string::npos) return group;
  return "other";
}

std::int64_t total_of(const ReasonCounts& counts) {
  std::int64_t total = 0;
  for (const auto& [group, count] : counts) total += count;
  return total;
}

std::string reasons_text(const ReasonCounts& counts) {
  std::string text;
  for (const auto& [group, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, group);
  return text;
}

}  // namespace eaglet
