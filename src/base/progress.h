#pragma once

#include <cstdint>
#include <string>

namespace eaglet {

/// What a stage tells while it works. Stages never print: apps/ decides between a live line on a terminal and
/// plain, flushed, timestamped lines, how often, and works out the rate and the ETA.
class Progress {
 public:
  virtual ~Progress() = default;
  /// A phase begins: `total` units (0 = not known), counted in `unit` ("prompts", "tokens", "steps").
  /// `already_done` units were finished by an earlier run and do not count for the rate.
  virtual void begin(const std::string& phase, std::uint64_t total, const std::string& unit,
                     std::uint64_t already_done = 0) = 0;
  /// `done` units so far; `detail` is short free text ("1203 tokens/s, loss 7.2"). Cheap: call it often.
  virtual void update(std::uint64_t done, const std::string& detail = {}) = 0;
  /// The phase is over; `summary` is one line.
  virtual void end(const std::string& summary) = 0;
  /// A milestone or a warning that must not be lost: always a line of its own.
  virtual void note(const std::string& text) = 0;
};

/// Says nothing; for tests and library use.
class NoProgress : public Progress {
 public:
  void begin(const std::string&, std::uint64_t, const std::string&, std::uint64_t) override {}
  void update(std::uint64_t, const std::string&) override {}
  void end(const std::string&) override {}
  void note(const std::string&) override {}
};

}  // namespace eaglet
