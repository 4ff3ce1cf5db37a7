#include "apps/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "apps/terminal.h"
#include "base/clock.h"
#include "formats/json.h"

namespace eaglet::apps {
namespace {

constexpr double kTtySeconds = 0.125;  // 8 Hz
constexpr double kPlainSeconds = 10.0;
constexpr double kRateWindowSeconds = 30.0;
constexpr double kQuietSeconds = 5.0;  // from here on a line says how long nothing has moved

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.1f}k", value / 1e3);
  if (value >= 10) return fmt::format("{:.0f}", value);
  return fmt::format("{:.2g}", value);
}

/// Units per second over a sliding window, so that an ETA follows what happens now.
class RateMeter {
 public:
  void start(double now, std::uint64_t done) {
    points_.assign(1, {now, done});
    last_move_ = now;
  }
  void add(double now, std::uint64_t done) {
    if (done != points_.back().done) last_move_ = now;
    // A point a quarter second at most: a stage may call update() thousands of times a second.
    if (points_.size() > 1 && now - points_[points_.size() - 2].time < 0.25) points_.pop_back();
    points_.push_back({now, done});
    while (points_.size() > 2 && now - points_[1].time > kRateWindowSeconds) points_.pop_front();
  }
  /// Something other than the count has moved: the stage is alive.
  void moved(double now) { last_move_ = now; }
  double rate(double now) const {
    const Point& first = points_.front();
    const std::uint64_t done = points_.back().done;
    return now > first.time && done > first.done ? static_cast<double>(done - first.done) / (now - first.time)
                                                 : 0;
  }
  double quiet(double now) const { return now - last_move_; }

 private:
  struct Point {
    double time;
    std::uint64_t done;
  };
  std::deque<Point> points_{{0, 0}};
  double last_move_ = 0;
};

class ConsoleProgress : public Progress {
 public:
  ConsoleProgress(ProgressMode mode, int fd, bool color) : mode_(mode), fd_(fd), color_(color) {
    clock_ = std::thread([this] { tick_until_stopped(); });
  }

  ~ConsoleProgress() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    clock_.join();
    clear_live_line();
  }

  void begin(const std::string& phase, std::uint64_t total, const std::string& unit,
             std::uint64_t already_done) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    view_ = PhaseView{.phase = phase, .unit = unit, .detail = {}, .done = already_done, .total = total};
    active_ = true;
    begun_ = monotonic_seconds();
    meter_.start(begun_, already_done);
    std::string first = phase + ": begins";
    if (total > 0) first = fmt::format("{}: {} {}", phase, total, unit);
    if (already_done > 0) first += fmt::format(", {} already done", already_done);
    if (mode_ == ProgressMode::kPlain) print_line(first);
    next_talk_ = begun_ + (mode_ == ProgressMode::kTty ? 0 : kPlainSeconds);
    if (mode_ == ProgressMode::kJson) print_json("begin", {});
  }

  void update(std::uint64_t done, const std::string& detail) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!active_) return;
    const double now = monotonic_seconds();
    view_.done = done;
    meter_.add(now, done);
    if (!detail.empty() && detail != view_.detail) {
      view_.detail = detail;
      meter_.moved(now);
    }
    talk_if_due(now);
  }

  void end(const std::string& summary) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!active_) return;
    active_ = false;
    refresh(monotonic_seconds());
    const std::string took = human_duration(view_.elapsed_seconds);
    if (mode_ == ProgressMode::kJson) return print_json("end", summary);
    print_line(toned(view_.phase + ":", Tone::kGood, color_) + " done in " + took +
               (summary.empty() ? "" : ", " + summary));
  }

  void note(const std::string& text) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (mode_ == ProgressMode::kJson) return print_json("note", text);
    print_line(text);
    if (active_ && mode_ == ProgressMode::kTty) draw(monotonic_seconds());
  }

 private:
  void tick_until_stopped() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      wake_.wait_for(lock, std::chrono::duration<double>(mode_ == ProgressMode::kTty ? kTtySeconds : 0.5));
      if (!stopping_ && active_) talk_if_due(monotonic_seconds());
    }
  }

  void refresh(double now) {
    view_.elapsed_seconds = now - begun_;
    view_.rate = meter_.rate(now);
    view_.quiet_seconds = meter_.quiet(now);
  }

  void talk_if_due(double now) {
    if (now < next_talk_) return;
    next_talk_ = now + (mode_ == ProgressMode::kTty ? kTtySeconds : kPlainSeconds);
    if (mode_ == ProgressMode::kTty) return draw(now);
    refresh(now);
    if (mode_ == ProgressMode::kJson) return print_json("progress", {});
    print_line(progress_text(view_));
  }

  void draw(double now) {
    refresh(now);
    // One column is left free: a full line makes some terminals wrap.
    write_whole(fd_, "\r" + cut_to_columns(progress_text(view_), terminal_columns(fd_) - 1) + "\033[K");
    live_line_ = true;
  }

  void clear_live_line() {
    if (live_line_) write_whole(fd_, "\r\033[K");
    live_line_ = false;
  }

  void print_line(const std::string& text) {
    if (mode_ == ProgressMode::kTty) {
      write_whole(fd_, (live_line_ ? "\r\033[K" : "") + text + "\n");
      live_line_ = false;
    } else {
      write_whole(fd_, rfc3339_utc(wall_seconds()) + " " + text + "\n");
    }
  }

  void print_json(const char* event, const std::string& text) {
    refresh(monotonic_seconds());
    const double now = wall_seconds();
    Json line = {
        {"schema", 1}, {"t", now}, {"time", rfc3339_utc(now)}, {"event", event}, {"phase", view_.phase}};
    if (!text.empty()) line["text"] = text;
    if (std::string(event) != "note") {
      line["done"] = view_.done;
      line["total"] = view_.total > 0 ? Json(view_.total) : Json(nullptr);
      line["unit"] = view_.unit;
      line["elapsed_seconds"] = view_.elapsed_seconds;
      line["units_per_second"] = view_.rate;
      const double eta = eta_seconds(view_);
      line["eta_seconds"] = eta >= 0 ? Json(eta) : Json(nullptr);
      if (!view_.detail.empty()) line["detail"] = view_.detail;
    }
    write_whole(fd_, json_line(line) + "\n");
  }

  const ProgressMode mode_;
  const int fd_;
  const bool color_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  bool stopping_ = false, active_ = false, live_line_ = false;
  PhaseView view_;
  RateMeter meter_;
  double begun_ = 0, next_talk_ = 0;
  std::thread clock_;
};

}  // namespace

std::optional<ProgressMode> parse_progress_mode(const std::string& text) {
  if (text == "auto") return ProgressMode::kAuto;
  if (text == "tty") return ProgressMode::kTty;
  if (text == "plain") return ProgressMode::kPlain;
  if (text == "json") return ProgressMode::kJson;
  if (text == "none") return ProgressMode::kNone;
  return std::nullopt;
}

double eta_seconds(const PhaseView& view) {
  if (view.total == 0 || view.rate <= 0 || view.done > view.total) return -1;
  return static_cast<double>(view.total - view.done) / view.rate;
}

std::string progress_text(const PhaseView& view) {
  std::string text = view.phase + "  ";
  if (view.total > 0) {
    const double share = std::min(1.0, static_cast<double>(view.done) / static_cast<double>(view.total));
    text += fmt::format("{}/{} {}  {:.0f}%", view.done, view.total, view.unit, 100 * share);
  } else if (view.done > 0) {
    text += fmt::format("{} {}", view.done, view.unit);
  }
  if (view.rate > 0) text += fmt::format("  {}/s", short_number(view.rate));
  if (const double eta = eta_seconds(view); eta >= 0) text += "  eta " + human_duration(eta);
  text += "  " + human_duration(view.elapsed_seconds);
  if (view.quiet_seconds >= kQuietSeconds)
    text += fmt::format("  (last step {} ago)", human_duration(view.quiet_seconds));
  if (!view.detail.empty()) text += "  " + view.detail;
  return text;
}

std::string cut_to_columns(const std::string& text, int columns) {
  const auto is_start = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; };
  if (std::count_if(text.begin(), text.end(), is_start) <= columns) return text;
  const int keep = std::max(0, columns - 3);
  int characters = 0;
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if (is_start(text[end]) && ++characters > keep) break;
  return text.substr(0, end) +
         std::string("...").substr(0, static_cast<std::size_t>(std::clamp(columns, 0, 3)));
}

std::unique_ptr<Progress> make_console_progress(ProgressMode mode, int fd, bool color) {
  if (mode == ProgressMode::kAuto) mode = is_live_terminal(fd) ? ProgressMode::kTty : ProgressMode::kPlain;
  if (mode == ProgressMode::kNone) return std::make_unique<NoProgress>();
  return std::make_unique<ConsoleProgress>(mode, fd, color);
}

}  // namespace eaglet::apps
