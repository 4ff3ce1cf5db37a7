#include "monitor/other_host.h"

#include <algorithm>

#include "base/host_name.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kLongestName = 253;  // of DNS

bool is_host_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName || text == "localhost") return false;
  if (text.front() == '-' || text.front() == '.' || text.back() == '.') return false;
  for (const char c : text)
    if (!is_digit(c) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-' && c != '.' &&
        c != '_')
      return false;
  // Addresses say where something listens (0.0.0.0, 127.0.0.1), not who wrote the line.
  return text.find_first_not_of("0123456789.") != std::string_view::npos;
}

std::string checked(std::string_view text) {
  return is_host_name(text) ? std::string(text) : std::string();
}

/// "node7:4711:4722 [0] NCCL INFO": what NCCL puts before each of its lines.
std::string host_of_nccl(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos || !contains(line.substr(blank, 40), " NCCL ")) return {};
  const auto parts = split(line.substr(0, blank), ':');
  const bool fits = parts.size() == 3 && whole_number(parts[1]) && whole_number(parts[2]);
  return fits ? checked(parts[0]) : std::string();
}

/// The name behind "host   :" as torchrun aligns it (two blanks at least: "host: db.example" is any setting),
/// or behind "hostname:", "hostname=".
std::string host_of_field(std::string_view line) {
  std::string_view rest = trim(line);
  const std::string start = lower(rest.substr(0, 8));
  const bool long_form = start == "hostname";
  if (!long_form && !starts_with(start, "host  ")) return {};
  rest = trim(rest.substr(long_form ? 8 : 4));
  if (rest.empty() || (rest.front() != ':' && !(long_form && rest.front() == '='))) return {};
  return checked(trim(rest.substr(1)));
}

OtherHost named(std::string name, std::string proof, const std::string& here) {
  OtherHost other;
  if (same_host(name, here)) return other;
  other.name = std::move(name);
  other.here = here;
  other.proof = std::move(proof);
  return other;
}

std::string host_of_record(const RunSeries& series) {
  if (!series.launch_record || !series.launch_record->is_object()) return {};
  const Json host = series.launch_record->value("host", Json(nullptr));
  return host.is_string() ? checked(host.get<std::string>()) : std::string();
}

const FileView* newest_event_file(const RunView& view) {
  const FileView* newest = nullptr;
  if (view.files)
    for (const FileView& file : *view.files)
      if (!host_of_event_file(file.path).empty() && (newest == nullptr || file.mtime > newest->mtime))
        newest = &file;
  return newest;
}

}  // namespace

std::string host_of_event_file(std::string_view path) {
  constexpr std::string_view kStart = "events.out.tfevents.";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (!starts_with(name, kStart)) return {};
  // TIME.HOST.PID.N and perhaps more; a host's own name may have dots.
  const auto parts = split(name.substr(kStart.size()), '.');
  for (std::size_t pid = parts.size(); pid-- > 2;) {
    const bool two_numbers =
        pid + 1 < parts.size() && whole_number(parts[pid]) && whole_number(parts[pid + 1]);
    if (!two_numbers || !whole_number(parts[0])) continue;
    const char* from = parts[1].data();
    return checked({from, static_cast<std::size_t>(parts[pid].data() - from) - 1});
  }
  return {};
}

std::string host_of_line(std::string_view line) {
  std::string host = host_of_nccl(line);
  return host.empty() ? host_of_field(line) : host;
}

OtherHost find_other_host(const RunSeries& series, const RunView& view, const std::string& here) {
  if (const std::string host = host_of_record(series); !host.empty())
    return named(host, "its launch record", here);
  if (view.status && !view.status->host.empty()) return named(view.status->host, "its status.json", here);
  if (const FileView* file = newest_event_file(view); file != nullptr)
    return named(host_of_event_file(file->path), "the name of its event file", here);
  // A log may name the machines of all ranks.
  const auto& hosts = series.log.hosts;
  const bool ours =
      std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return same_host(host, here); });
  return ours || hosts.empty() ? OtherHost() : named(hosts.front(), "its log", here);
}

}  // namespace eaglet::monitor
