#include "monitor/desync.h"

#include <fmt/format.h>

#include <map>

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

/// "WorkNCCL(SeqNum=8841, OpType=ALLREDUCE, ...": 8841.
std::optional<std::int64_t> sequence_number(std::string_view text) {
  constexpr std::string_view kName = "SeqNum=";
  const std::size_t at = text.find(kName);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view digits = text.substr(at + kName.size());
  return whole_number(digits.substr(0, digits.find_first_not_of("0123456789")));
}

}  // namespace

std::string rank_behind(const std::vector<LogError>& errors) {
  std::map<std::string, std::int64_t> first;  // of each rank: later ones are of other groups
  for (const LogError& error : errors)
    if (const auto number = sequence_number(error.text);
        error.kind == "collective_timeout" && number && !error.rank.empty())
      first.emplace(error.rank, *number);
  if (first.size() < 2) return {};
  auto least = first.begin(), most = first.begin();
  for (auto it = first.begin(); it != first.end(); ++it) {
    if (it->second < least->second) least = it;
    if (it->second > most->second) most = it;
  }
  if (least->second == most->second) return {};
  return fmt::format("rank {} is behind: at collective {}, others at {}", least->first, least->second,
                     most->second);
}

}  // namespace eaglet::monitor
