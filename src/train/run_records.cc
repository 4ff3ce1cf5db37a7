#include "train/run_records.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace eaglet {
namespace {

using Scalars = std::vector<std::pair<std::string, double>>;

void add_by_depth(const LogRecord& record, const std::string& prefix, const std::string& suffix,
                  Scalars* scalars) {
  for (const auto& [name, values] : {std::pair{"loss", &record.loss}, std::pair{"full_acc", &record.full_acc},
                                     std::pair{"cond_acc", &record.cond_acc}})
    for (std::size_t k = 0; k < values->size(); ++k)
      scalars->emplace_back(fmt::format("{}{}_{}{}", prefix, name, k, suffix), (*values)[k]);
}

std::string joined(const std::vector<double>& values, const char* format) {
  std::string text;
  for (const double value : values)
    text += (text.empty() ? "" : " ") + fmt::format(fmt::runtime(format), value);
  return text;
}

// "  device products 61 % head_loss 20 % attention 5 %  mfu 0.520": of the step's time.
std::string device_shares(const LogRecord& r) {
  if (r.device_seconds.empty() || !(r.step_seconds > 0)) return {};
  constexpr std::size_t kShown = 3;
  auto ops = r.device_seconds;
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = "  device";
  for (std::size_t i = 0; i < std::min(ops.size(), kShown); ++i)
    text += fmt::format(" {} {:.0f} %", ops[i].first, 100 * ops[i].second / r.step_seconds);
  if (std::isfinite(r.mfu_ratio)) text += fmt::format("  mfu {:.3f}", r.mfu_ratio);
  return text;
}

}  // namespace

std::string step_line(const LogRecord& r, std::int64_t total_steps) {
  std::string line = fmt::format(
      "step {}/{}  epoch {}  loss {}  full_acc {}  length {:.3f}  lr {:.3e}  grad_norm {:.3f}  {:.0f} "
      "tokens/s  "
      "wait {:.1f} %",
      r.step, total_steps, r.epoch, joined(r.loss, "{:.4f}"), joined(r.full_acc, "{:.4f}"),
      r.acceptance_length, r.lr, r.grad_norm, r.tokens_per_second,
      r.step_seconds > 0 ? 100 * r.data_wait_seconds / r.step_seconds : 0.0);
  return line + device_shares(r);
}

Result<RunRecords> RunRecords::open(const std::string& output_dir, const std::string& run_id,
                                    std::int64_t total_steps,
                                    std::function<void(const std::string&)> on_line) {
  EAGLET_ASSIGN_OR_RETURN(LineAppender log, LineAppender::open(output_dir + "/log.jsonl"));
  EAGLET_ASSIGN_OR_RETURN(EventWriter events, EventWriter::open(output_dir));
  RunRecords records;
  records.files_ = std::make_unique<Files>(Files{std::move(log), std::move(events), StatusFile(output_dir)});
  records.on_line_ = std::move(on_line);
  records.now_.pid = ::getpid();
  records.now_.start_time = wall_seconds();
  records.now_.run_id = run_id;
  records.now_.total = total_steps;
  records.now_.step = -1;
  records.now_.last_loss = std::nan("");
  return records;
}

Status RunRecords::step(const LogRecord& record) {
  if (!files_) return {};
  EAGLET_RETURN_IF_ERROR(files_->log.append(log_line(record)));
  Scalars scalars = {{"train/loss", record.total_loss}};
  add_by_depth(record, "train/", "", &scalars);
  scalars.insert(scalars.end(), {{"train/acceptance_length", record.acceptance_length},
                                 {"lr", record.lr},
                                 {"grad_norm", record.grad_norm},
                                 {"epoch", static_cast<double>(record.epoch)},
                                 {"profile/tokens_per_s", record.tokens_per_second},
                                 {"profile/step_ms", 1e3 * record.step_seconds},
                                 {"profile/fetch_ms", 1e3 * record.data_wait_seconds}});
  if (!std::isnan(record.tokens_total)) scalars.emplace_back("profile/tokens_total", record.tokens_total);
  for (const auto& [op, seconds] : record.device_seconds)
    scalars.emplace_back("profile/device_" + op + "_ms", 1e3 * seconds);
  EAGLET_RETURN_IF_ERROR(files_->events.write(record.t, record.step, scalars));
  if (on_line_) on_line_(step_line(record, now_.total));
  return {};
}

Status RunRecords::validation(const LogRecord& record) {
  if (!files_) return {};
  EAGLET_RETURN_IF_ERROR(files_->log.append(log_line(record)));
  Scalars scalars = {{"val/loss_epoch", record.total_loss}};
  add_by_depth(record, "val/", "_epoch", &scalars);
  scalars.emplace_back("val/acceptance_length_epoch", record.acceptance_length);
  EAGLET_RETURN_IF_ERROR(files_->events.write(record.t, record.step, scalars));
  if (on_line_)
    on_line_(fmt::format("validation after step {}  loss {}  full_acc {}  length {:.4f}", record.step,
                         joined(record.loss, "{:.4f}"), joined(record.full_acc, "{:.4f}"),
                         record.acceptance_length));
  return {};
}

Status RunRecords::event(const std::string& event, std::int64_t step, std::int64_t epoch,
                         const std::string& message) {
  if (!files_) return {};
  LogRecord record;
  record.t = wall_seconds();
  record.event = event;
  record.step = step;
  record.epoch = epoch;
  record.message = message;
  return files_->log.append(log_line(record));
}

void RunRecords::set_progress(std::int64_t step, double loss, double tokens_per_second) {
  now_.step = step;
  now_.last_loss = loss;
  now_.tokens_per_second = tokens_per_second;
}

void RunRecords::set_device_seconds(const std::vector<std::pair<std::string, double>>& seconds) {
  now_.device_seconds = seconds;
}

Status RunRecords::status(const std::string& phase, double next_within_seconds) {
  if (!files_) return {};
  now_.phase = phase;
  now_.next_by = next_within_seconds > 0 ? wall_seconds() + next_within_seconds : 0;
  return files_->status.update(now_);
}

}  // namespace eaglet
