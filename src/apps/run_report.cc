#include "apps/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/terminal.h"
#include "base/clock.h"
#include "base/files.h"

namespace eaglet::apps {
namespace {
namespace fs = std::filesystem;

// What one drafted token costs beside one pass of a large target on an accelerator: a one-layer draft with a
// reduced vocabulary beside some 30 to 60 layers.
constexpr double kLargeTargetDraftCost = 0.03;

double bytes_below(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return static_cast<double>(fs::file_size(path, error));
  double bytes = 0;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (it->is_regular_file(error) && !it->is_symlink(error))
      bytes += static_cast<double>(it->file_size(error));
  return bytes;
}

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

Json stage_list(const RunPipeline& pipeline) {
  const RunPaths& paths = pipeline.paths();
  const std::map<std::string, double> bytes = {{"generate", bytes_below(paths.conversations())},
                                               {"train", bytes_below(paths.draft())},
                                               {"export", bytes_below(paths.exported())}};
  Json list = Json::array();
  for (const char* name : {"generate", "extract", "train", "evaluate", "export", "serve"}) {
    const auto record = pipeline.records().find(name);
    if (record == pipeline.records().end()) continue;
    const auto own = bytes.find(name);
    const double written = own != bytes.end() ? own->second : record->second.result.value("state_bytes", 0.0);
    list.push_back({{"stage", name}, {"seconds", record->second.seconds}, {"bytes", written}});
  }
  return list;
}

void add_held_out(const Json& evaluated, Json* report) {
  Json by_depth = Json::array(), in_vocabulary = Json::array(), walked = Json::array();
  for (const Json& depth : evaluated.at("depth")) {
    const double total = depth.at("total").get<double>();
    by_depth.push_back(ratio(depth.at("right").get<double>(), total));
    in_vocabulary.push_back(ratio(depth.at("right_in_vocab").get<double>(), total));
  }
  for (const Json& walk : evaluated.at("walked"))
    walked.push_back(
        {{"draft_length", walk.at("draft_length")}, {"tokens_per_pass", walk.at("acceptance_length")}});
  (*report)["held_out_documents"] = evaluated.at("documents");
  (*report)["held_out_supervised_tokens"] = evaluated.at("supervised_tokens");
  (*report)["held_out_acceptance_length"] = evaluated.at("acceptance_length");
  (*report)["acceptance_by_depth"] = by_depth;
  (*report)["right_inside_draft_vocabulary_by_depth"] = in_vocabulary;
  (*report)["best_token_outside_draft_vocabulary_share"] = evaluated.at("teacher_best_outside_share");
  (*report)["walked"] = walked;
}

/// The draft length the headline speaks of: as long as the draft was trained for, or the longest that was
/// served.
const Json* headline_length(const Json& lengths, std::int64_t ttt_steps) {
  const Json* best = nullptr;
  for (const Json& length : lengths) {
    best = &length;
    if (length.at("draft_length") == ttt_steps) break;
  }
  return best;
}

/// The tokens per pass at which a pass of this draft length, as long as it took here, gains nothing.
double break_even(const Json& length, double plain_tokens_per_second) {
  const double speed_up = ratio(length.at("tokens_per_second").get<double>(), plain_tokens_per_second);
  return ratio(length.at("acceptance_length").get<double>(), speed_up);
}

void add_served(const Json& served, std::int64_t ttt_steps, Json* report) {
  const double plain = served.at("plain_tokens_per_second").get<double>();
  const Json* headline = headline_length(served.at("lengths"), ttt_steps);
  Json list = Json::array();
  for (const Json& length : served.at("lengths"))
    list.push_back({{"draft_length", length.at("draft_length")},
                    {"tokens_per_pass", length.at("acceptance_length")},
                    {"accepted_at", length.at("accepted_at")},
                    {"passes", length.at("passes")},
                    {"tokens_per_second", length.at("tokens_per_second")},
                    {"speed_up", ratio(length.at("tokens_per_second").get<double>(), plain)},
                    {"break_even_tokens_per_pass", break_even(length, plain)}});
  std::int64_t unexcused = 0;
  for (const Json& difference : served.at("differences"))
    unexcused += difference.at("excused_tie") == true ? 0 : 1;
  (*report)["served_acceptance_length"] =
      headline == nullptr ? Json(nullptr) : headline->at("acceptance_length");
  (*report)["served_draft_length"] = headline == nullptr ? Json(nullptr) : headline->at("draft_length");
  (*report)["served_with"] = served.value("engine", "llama.cpp");
  (*report)["served_at_once"] = served.value("at_once", 1);
  (*report)["served_prompts"] = served.at("prompts");
  (*report)["tokens_per_second_without_draft"] = plain;
  (*report)["served"] = list;
  (*report)["served_differences"] = served.at("differences").size();
  (*report)["served_differences_not_ties"] = unexcused;
}

std::string join_shares(const Json& shares) {
  std::string out;
  for (const Json& share : shares)
    out += fmt::format("{}{:.3f}", out.empty() ? "" : "  ", share.get<double>());
  return out;
}

}  // namespace

Json run_report(const Recipe& recipe, const RunPipeline& pipeline) {
  const auto& records = pipeline.records();
  const Json& generated = records.at("generate").result;
  const Json& extracted = records.at("extract").result;
  const Json& trained = records.at("train").result;
  const double tokens = extracted.at("tokens").get<double>();
  const double now = wall_seconds();
  Json report = {{"schema", 1},
                 {"run", pipeline.paths().root},
                 {"finished", now},
                 {"finished_time", rfc3339_utc(now)},
                 {"model", fs::path(recipe.model_path).filename().string()},
                 {"answers", generated.at("stopped").get<std::int64_t>() +
                                 generated.at("cut_by_length").get<std::int64_t>()},
                 {"answers_cut_by_length", generated.at("cut_by_length")},
                 {"tokens", extracted.at("tokens")},
                 {"supervised_tokens", extracted.at("supervised_tokens")},
                 {"supervised_share", ratio(extracted.at("supervised_tokens").get<double>(), tokens)},
                 {"state_bytes", extracted.at("state_bytes")},
                 {"states_kept", path_exists(pipeline.paths().states())},
                 {"train_steps", trained.at("steps")},
                 {"trainable_params", trained.at("trainable_params")},
                 {"total_params", trained.at("total_params")},
                 {"train_tokens_per_second", trained.at("train_tokens_per_second")}};
  add_held_out(records.at("evaluate").result, &report);
  const auto served = records.find("serve");
  if (served != records.end()) add_served(served->second.result, recipe.train.ttt_steps, &report);
  if (served == records.end()) report["served_acceptance_length"] = nullptr;
  report["checkpoint"] = pipeline.checkpoint();
  report["draft"] = pipeline.served_draft();
  report["stages"] = stage_list(pipeline);
  report["verdict"] = verdict(report);
  return report;
}

std::string verdict(const Json& report) {
  if (!report.contains("served") || report["served"].empty()) return {};
  const auto speed = [](const Json& a) { return a.at("speed_up").get<double>(); };
  const Json& served = report["served"];
  const Json& best = *std::max_element(served.begin(), served.end(),
                                       [&](const Json& a, const Json& b) { return speed(a) < speed(b); });
  double large = 0;
  for (const Json& length : served)
    large = std::max(large, length.at("tokens_per_pass").get<double>() /
                                (1 + kLargeTargetDraftCost * length.at("draft_length").get<double>()));
  const double length = best.at("tokens_per_pass").get<double>();
  const std::string beyond = fmt::format(
      "On a large target on an accelerator, where checking a few drafted tokens costs about as much as "
      "making one and a "
      "draft step about {:.0f} % of that, the same acceptance would be worth about {:.2f}x.",
      100 * kLargeTargetDraftCost, large);
  if (speed(best) >= 1)
    return fmt::format(
               "Served with the draft, this target makes {:.2f}x the tokens per second on this machine "
               "(draft length {}). ",
               speed(best), best.at("draft_length").get<int>()) +
           beyond;
  return fmt::format(
             "Below break-even here: at its best (draft length {}) the draft makes this target {:.2f}x as "
             "fast. "
             "Break-even at that length needs about {:.2f} tokens per pass, this draft reaches {:.2f}. ",
             best.at("draft_length").get<int>(), speed(best),
             best.at("break_even_tokens_per_pass").get<double>(), length) +
         beyond;
}

std::string report_table(const Json& report, bool color) {
  std::string out;
  const auto line = [&](const std::string& name, const std::string& value) {
    out += fmt::format("  {:<34} {}\n", name, value);
  };
  const auto number = [&](const char* key) { return report.at(key).get<double>(); };
  line("answers", fmt::format("{} ({} cut by length)", report.at("answers").get<std::int64_t>(),
                              report.at("answers_cut_by_length").get<std::int64_t>()));
  line("tokens",
       fmt::format("{:.0f}, {:.1f} % supervised", number("tokens"), 100 * number("supervised_share")));
  line("states", human_bytes(number("state_bytes")) + (report.at("states_kept") == true ? "" : ", freed"));
  line("training",
       fmt::format("{} steps, {:.0f} tokens/s, {:.1f} M of {:.1f} M parameters trained",
                   report.at("train_steps").get<std::int64_t>(), number("train_tokens_per_second"),
                   number("trainable_params") / 1e6, number("total_params") / 1e6));
  line("held-out acceptance by depth", join_shares(report.at("acceptance_by_depth")));
  line("held-out acceptance length",
       toned(fmt::format("{:.3f}", number("held_out_acceptance_length")), Tone::kStrong, color) +
           fmt::format(" ({} documents, {:.0f} tokens)", report.at("held_out_documents").get<std::int64_t>(),
                       number("held_out_supervised_tokens")));
  if (report.contains("served")) {
    if (report.at("served_acceptance_length").is_number())
      line("served acceptance length",
           toned(fmt::format("{:.3f}", number("served_acceptance_length")), Tone::kStrong, color) +
               fmt::format(" (draft length {}, {} prompts)",
                           report.at("served_draft_length").get<std::int64_t>(),
                           report.at("served_prompts").get<std::int64_t>()));
    if (report.at("served_at_once").get<std::int64_t>() > 1)
      line("served with", fmt::format("{}, {} prompts at once", report.at("served_with").get<std::string>(),
                                      report.at("served_at_once").get<std::int64_t>()));
    line("tokens/s without the draft", fmt::format("{:.1f}", number("tokens_per_second_without_draft")));
    for (const Json& length : report.at("served"))
      line(fmt::format("tokens/s with it, draft length {}", length.at("draft_length").get<std::int64_t>()),
           fmt::format("{:.1f}  ({:.2f}x, {:.3f} tokens per pass, break-even at {:.2f})",
                       length.at("tokens_per_second").get<double>(), length.at("speed_up").get<double>(),
                       length.at("tokens_per_pass").get<double>(),
                       length.at("break_even_tokens_per_pass").get<double>()));
    const auto differences = report.at("served_differences").get<std::int64_t>();
    const auto real = report.at("served_differences_not_ties").get<std::int64_t>();
    line("served text",
         differences == 0 ? "identical with and without the draft"
         : real == 0      ? fmt::format("identical but for {} ties within rounding", differences)
                          : toned(fmt::format("DIFFERS {} times beyond rounding", real), Tone::kBad, color));
  }
  line("draft", report.at("run").get<std::string>() + "/" + report.at("draft").get<std::string>());
  line("report", report.at("run").get<std::string>() + "/report.html");
  const std::string sentence = report.at("verdict").get<std::string>();
  return out + (sentence.empty() ? "" : "\n" + sentence + "\n");
}

}  // namespace eaglet::apps
