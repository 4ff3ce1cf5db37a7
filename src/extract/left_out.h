#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace eaglet {

/// Documents that got no states, with the reason: for the report and for `<store>/left_out.jsonl`.
class LeftOut {
 public:
  void add(std::size_t document, const std::string& id, const std::string& file, const std::string& problem,
           const std::string& reason);
  /// Its states came late, after all.
  void take_back(std::size_t document) { documents_.erase(document); }
  std::size_t size() const { return documents_.size(); }
  /// Documents by problem.
  std::map<std::string, std::int64_t> counts() const;
  /// A line of JSON for each.
  std::string lines() const;

 private:
  struct Entry {
    std::string problem, line;
  };
  std::map<std::size_t, Entry> documents_;
};

}  // namespace eaglet
