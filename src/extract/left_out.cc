#include "extract/left_out.h"

#include "formats/json.h"

namespace eaglet {

void LeftOut::add(std::size_t document, const std::string& id, const std::string& file,
                  const std::string& problem, const std::string& reason) {
  documents_[document] = {
      problem, json_line({{"id", id}, {"file", file}, {"problem", problem}, {"reason", reason}}) + "\n"};
}

std::map<std::string, std::int64_t> LeftOut::counts() const {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [document, entry] : documents_) ++counts[entry.problem];
  return counts;
}

std::string LeftOut::lines() const {
  std::string lines;
  for (const auto& [document, entry] : documents_) lines += entry.line;
  return lines;
}

}  // namespace eaglet
