#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/progress.h"

namespace eaglet::apps {

enum class ProgressMode { kAuto, kTty, kPlain, kJson, kNone };
/// "auto", "tty", "plain", "json", "none"; nullopt for anything else.
std::optional<ProgressMode> parse_progress_mode(const std::string& text);

/// What one phase looks like at one moment; all numbers a line of progress needs.
struct PhaseView {
  std::string phase, unit, detail;
  std::uint64_t done = 0, total = 0;  // total 0: not known
  double elapsed_seconds = 0;
  double rate = 0;           // units per second over the last half minute; 0: not known
  double quiet_seconds = 0;  // since the last update that moved
};

/// Seconds to go, or -1 when the rate or the total is not known.
double eta_seconds(const PhaseView& view);
/// "generate  41/100 prompts  41%  1.3/s  eta 46s  380 tokens/s": one line, without time or newline.
std::string progress_text(const PhaseView& view);
/// `text` cut to `columns` characters (ASCII "..." marks the cut), never inside a UTF-8 sequence.
std::string cut_to_columns(const std::string& text, int columns);

/// Talk on a file descriptor: on a terminal one line rewritten 8 times a second; elsewhere whole, flushed,
/// timestamped lines at once when a phase begins, every 10 s while it lasts and at each milestone; or JSON
/// lines. A clock thread keeps talking while a stage is silent, so no run of ours looks dead. Thread-safe.
std::unique_ptr<Progress> make_console_progress(ProgressMode mode, int fd, bool color);

}  // namespace eaglet::apps
