#include "monitor/log_errors.h"

#include <cmath>

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

struct Phrase {
  const char* text;
  const char* kind;
  bool consequence;
};

// The order matters: the first that fits names the kind.
constexpr Phrase kPhrases[] = {
    {"CUDA out of memory", "out_of_memory", false},
    {"OutOfMemoryError", "out_of_memory", false},
    {"std::bad_alloc", "out_of_memory", false},
    {"Cannot allocate memory", "out_of_memory", false},
    {"Watchdog caught collective operation timeout", "collective_timeout", false},
    {"is killed by signal: Bus error", "bus_error", false},
    {"No space left on device", "disk_full", false},
    {"EADDRINUSE", "port_taken", false},
    {"Address already in use", "port_taken", false},
    {"address already in use", "port_taken", false},
    {"device-side assert", "device_error", false},
    {"CUDA error:", "device_error", false},
    {"NVRM: Xid", "device_error", false},
    {"Segmentation fault", "segfault", false},
    {"(core dumped)", "signal", false},
    {"failed (exitcode:", "child_exit", true},
    {"received by PID", "child_exit", true},
    {"ChildFailedError", "child_exit", true},
    {"Sending process", "child_exit", true},
    {"DistStoreError", "child_exit", true},
    {"Received SIGTERM", "signal", false},
    {"Received SIGINT", "signal", false},
    {"KeyboardInterrupt", "signal", false},
};

/// "torch.OutOfMemoryError: ...", "ValueError: ...": an identifier that ends in Error or Exception, at the
/// start.
bool is_exception(std::string_view line) {
  std::size_t end = 0;
  while (end < line.size() &&
         (std::isalnum(static_cast<unsigned char>(line[end])) != 0 || line[end] == '.' || line[end] == '_'))
    ++end;
  const std::string_view name = line.substr(0, end);
  const auto ends_with = [&](std::string_view tail) {
    return name.size() > tail.size() && name.substr(name.size() - tail.size()) == tail;
  };
  const bool named = ends_with("Error") || ends_with("Exception");
  return named && (end == line.size() || line[end] == ':');
}

bool is_warning(std::string_view line) {
  return contains(line, "Warning:") || starts_with(line, "WARNING") || starts_with(line, "W0") ||
         starts_with(line, "warning");
}

/// "[rank0]:", "[default3]:", "[Rank 1]", "(Worker pid=7)", "(RayTask pid=7)".
bool take_rank(std::string_view* line, std::string* rank) {
  for (const char* start : {"[rank", "[default", "[Rank "}) {
    if (!starts_with(*line, start)) continue;
    const std::size_t close = line->find(']');
    const std::size_t from = std::string_view(start).size();
    if (close == std::string_view::npos || !whole_number(line->substr(from, close - from))) continue;
    *rank = line->substr(from, close - from);
    line->remove_prefix(close + 1);
    if (!line->empty() && line->front() == ':') line->remove_prefix(1);
    return true;
  }
  if (starts_with(*line, "(") && contains(line->substr(0, 40), " pid=")) {
    const std::size_t close = line->find(')');
    if (close == std::string_view::npos || close > 40) return false;
    line->remove_prefix(close + 1);
    return true;
  }
  return false;
}

bool take_time(std::string_view* line, LinePrefix* prefix) {
  const bool bracket = starts_with(*line, "[");
  const std::string_view body = bracket ? line->substr(1) : *line;
  std::string_view rest;
  if (const auto time = iso_time(body, &rest)) {
    prefix->time = *time;
    prefix->time_has_date = true;
  } else if (body.size() > 8 && body[2] == ':' && body[5] == ':') {
    const auto day_time = clock_duration(body.substr(0, 8));
    if (!day_time) return false;
    prefix->time = *day_time;
    rest = body.substr(8);
  } else {
    return false;
  }
  if (bracket) {
    if (rest.empty() || rest.front() != ']') return false;
    rest.remove_prefix(1);
  }
  *line = rest;
  return true;
}

/// "INFO:name:", "| INFO | trainer |", "INFO -", "INFO".
bool take_level(std::string_view* line, std::string* level) {
  std::string_view body = *line;
  while (!body.empty() &&
         (body.front() == '|' || body.front() == '-' || body.front() == ' ' || body.front() == '['))
    body.remove_prefix(1);
  for (const char* known : {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}) {
    if (!starts_with(body, known)) continue;
    std::string_view rest = body.substr(std::string_view(known).size());
    if (!rest.empty() && std::isalnum(static_cast<unsigned char>(rest.front())) != 0) continue;
    *level = known;
    if (starts_with(rest, ":")) {  // INFO:logger:text
      const std::size_t colon = rest.find(':', 1);
      if (colon != std::string_view::npos && rest.substr(1, colon - 1).find(' ') == std::string_view::npos)
        rest.remove_prefix(colon);
      rest.remove_prefix(1);
    } else if (starts_with(trim(rest), "|")) {  // INFO | logger | text
      rest = trim(rest).substr(1);
      if (const std::size_t bar = rest.find('|'); bar != std::string_view::npos) rest.remove_prefix(bar + 1);
    } else {
      while (!rest.empty() && (rest.front() == ']' || rest.front() == '-' || rest.front() == ' '))
        rest.remove_prefix(1);
    }
    *line = rest;
    return true;
  }
  return false;
}

}  // namespace

std::optional<LogError> find_error(std::string_view line) {
  LogError error;
  const auto made = [&](const char* kind, bool consequence) {
    error.kind = kind;
    error.text = std::string(line.substr(0, 400));
    error.consequence = consequence;
    return error;
  };
  if (is_warning(line) && !contains(line, "Received SIG")) return std::nullopt;
  if (line == "Killed" || line == "Terminated" || line == "Aborted") return made("killed", false);
  for (const Phrase& phrase : kPhrases)
    if (contains(line, phrase.text)) return made(phrase.kind, phrase.consequence);
  if (is_exception(line)) return made("exception", false);
  if (starts_with(line, "error: ") || starts_with(line, "fatal: ")) return made("exception", false);
  return std::nullopt;
}

std::string_view without_prefix(std::string_view line, LinePrefix* prefix) {
  for (int i = 0; i < 8; ++i) {
    line = trim(line);
    if (take_rank(&line, &prefix->rank)) continue;
    if (std::isnan(prefix->time) && take_time(&line, prefix)) continue;
    if (prefix->level.empty() && take_level(&line, &prefix->level)) continue;
    break;
  }
  return line;
}

}  // namespace eaglet::monitor
