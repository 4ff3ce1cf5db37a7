#include "monitor/server_activity.h"

#include <fmt/format.h>

#include <cmath>

namespace eaglet::monitor {
namespace {

/// Whether it did anything between two answers: llama-server counts tokens when a request is done, passes at
/// once.
bool moved_between(const ServerMoment& before, const ServerMoment& after) {
  for (const auto counter :
       {&ServerMoment::prompt_tokens, &ServerMoment::generated_tokens, &ServerMoment::passes})
    if (after.*counter > before.*counter || after.*counter < before.*counter)
      return true;  // not what is unknown
  return false;
}

double rate(double before, double after, double seconds) {
  return seconds > 0 && after >= before ? (after - before) / seconds : kNotKnown;
}

/// Tokens per pass of the target: one of its own, and what was accepted of a draft.
double accepted_length(const ServerMoment& before, const ServerMoment& after) {
  const double drafts = after.drafts - before.drafts;
  if (drafts > 0) return 1 + (after.accepted_tokens - before.accepted_tokens) / drafts;
  return after.accepted_length;
}

}  // namespace

ServerActivity server_activity(const RunSeries& series, std::size_t first_view) {
  ServerActivity found;
  const auto& views = series.views;
  const RunView *first = nullptr, *last = nullptr, *moved = nullptr, *earliest = nullptr;
  for (const RunView& view : views) {
    if (!view.server) continue;
    found.answers = view.server->known;
    found.trouble = view.server->trouble;
    if (!view.server->known) continue;
    const bool in_window = static_cast<std::size_t>(&view - views.data()) >= first_view;
    if (earliest == nullptr) earliest = &view;
    if (last != nullptr && moved_between(*last->server, *view.server)) {
      moved = &view;
      found.moved = in_window;
    }
    if (first == nullptr && in_window) first = &view;
    last = &view;
  }
  if (last == nullptr) return found;
  found.known = true;
  const ServerMoment& now = *last->server;
  found.kind = now.kind;
  found.running = now.running;
  found.waiting = now.waiting;
  found.cache_share = now.cache_share;
  found.silent_seconds = found.answers ? 0 : seconds_between(*last, views.back());
  found.still_seconds = seconds_between(moved != nullptr ? *moved : *earliest, views.back());
  if (first == nullptr || first == last) return found;
  const double seconds = seconds_between(*first, *last);
  found.prompt_tokens_per_second = rate(first->server->prompt_tokens, now.prompt_tokens, seconds);
  found.generated_tokens_per_second = rate(first->server->generated_tokens, now.generated_tokens, seconds);
  found.accepted_length = accepted_length(*first->server, now);
  return found;
}

bool is_server(const RunSeries& series, const Activity& activity) {
  return activity.server.known && activity.last_step < 0 && series.log.records == 0 && series.log.bars == 0 &&
         !series.views.back().status;
}

std::string server_text(const ServerActivity& server) {
  std::string text;
  const auto add = [&](double value, const char* format) {
    if (std::isnan(value)) return;
    text += (text.empty() ? "" : ", ") + fmt::format(fmt::runtime(format), value);
  };
  add(server.running, "{:.0f} running");
  add(server.waiting, "{:.0f} waiting");
  add(server.prompt_tokens_per_second, "{:.0f} prompt tokens/s");
  add(server.generated_tokens_per_second, "{:.0f} generated tokens/s");
  add(100 * server.cache_share, "KV cache {:.0f} %");
  return text;
}

}  // namespace eaglet::monitor
