#include "apps/draft_import.h"

#include <fmt/format.h>

namespace eaglet::apps {
namespace {

void add_list(const char* title, const std::vector<LoadReport::Skipped>& items, std::string* text) {
  for (const auto& item : items) *text += fmt::format("  {:<10}{}: {}\n", title, item.name, item.reason);
}

Json list_json(const std::vector<LoadReport::Skipped>& items) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back({{"name", item.name}, {"reason", item.reason}});
  return list;
}

}  // namespace

std::string load_report_text(const LoadReport& report) {
  std::string text;
  for (const std::string& name : report.loaded) text += fmt::format("  {:<10}{}\n", "loaded", name);
  add_list("filled", report.missing, &text);
  add_list("skipped", report.skipped, &text);
  for (const std::string& note : report.notes) text += fmt::format("  {:<10}{}\n", "changed", note);
  return text;
}

Json load_report_json(const LoadReport& report) {
  Json json;
  json["loaded"] = report.loaded;
  json["filled"] = list_json(report.missing);
  json["skipped"] = list_json(report.skipped);
  json["changed"] = report.notes;
  return json;
}

std::string layer_text(const std::vector<std::int32_t>& layers) {
  return fmt::format("{} (id k = input of layer k of the target, as vLLM and llama.cpp count)",
                     fmt::join(layers, ", "));
}

}  // namespace eaglet::apps
