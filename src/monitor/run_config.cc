#include "monitor/run_config.h"

#include <cmath>

#include "monitor/roles.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

struct SettingAlias {
  const char* printed;
  const char* key;
};
// One word per thing: the names of other trainers.
constexpr SettingAlias kSettingAliases[] = {{"total_seq_len", "max_seq_len"},
                                            {"max_length", "max_seq_len"},
                                            {"max_seq_length", "max_seq_len"},
                                            {"seq_length", "max_seq_len"},
                                            {"ttt_length", "ttt_steps"},
                                            {"num_epochs", "epochs"},
                                            {"num_train_epochs", "epochs"},
                                            {"max_epochs", "epochs"},
                                            {"learning_rate", "lr"},
                                            {"lr_scheduler_type", "scheduler_type"},
                                            {"lr_total_steps", "scheduler_total_steps"},
                                            {"num_train_batches", "train_batches"},
                                            {"num_samples", "train_samples"},
                                            {"samples", "train_samples"},
                                            {"total_samples", "train_samples"},
                                            {"total_tokens", "real_tokens"},
                                            {"num_tokens", "real_tokens"},
                                            {"nproc_per_node", "world_size"},
                                            {"num_gpus", "world_size"},
                                            {"gradient_accumulation_steps", "accumulation"},
                                            {"accumulate_grad_batches", "accumulation"},
                                            {"vocab_coverage", "covered_share"},
                                            {"coverage", "covered_share"},
                                            {"dataloader_num_workers", "num_workers"},
                                            {"num_dataloader_workers", "num_workers"},
                                            {"init_from", "from"},
                                            {"from_pretrained", "from"},
                                            {"draft_init", "from"},
                                            {"num_attention_heads", "num_heads"},
                                            {"num_key_value_heads", "num_kv_heads"},
                                            {"vocab_size", "target_vocab_size"},
                                            {"verifier_vocab_size", "target_vocab_size"},
                                            {"trainable_parameters", "trainable_params"},
                                            {"total_parameters", "total_params"}};

std::string canonical(std::string_view printed) {
  std::string name = lower(printed);
  for (char& c : name)
    if (c == '-') c = '_';
  for (const SettingAlias& alias : kSettingAliases)
    if (name == alias.printed) return alias.key;
  return name;
}

std::string json_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

bool same_value(const std::string& a, const std::string& b) {
  const auto x = monitor::number(a), y = monitor::number(b);
  if (x && y) return *x == *y || std::abs(*x - *y) <= 1e-9 * std::abs(*x);
  return a == b;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> command_flags(const std::string& command) {
  std::vector<std::pair<std::string, std::string>> flags;
  const auto parts = words(command);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!starts_with(parts[i], "--") || parts[i].size() < 3) continue;
    const std::string_view flag = parts[i].substr(2);
    if (const std::size_t equals = flag.find('='); equals != std::string_view::npos)
      flags.emplace_back(canonical(flag.substr(0, equals)), flag.substr(equals + 1));
    else if (i + 1 < parts.size() && !starts_with(parts[i + 1], "--"))
      flags.emplace_back(canonical(flag), parts[i + 1]);
  }
  return flags;
}

RunConfig::RunConfig(const RunSeries& series) {
  if (series.config && series.config->is_object()) read_json(*series.config, "train_config.json");
  if (series.log_known) read_log(series.log);
  read_processes(series);
  // Last: what a tracker was told may be what was meant, not what came of it.
  if (series.tracker_config && series.tracker_config->is_object())
    read_json(*series.tracker_config, "Trackio");
}

void RunConfig::read_processes(const RunSeries& series) {
  const bool known = !series.views.empty() && series.views.back().processes;
  const Roles roles = known ? roles_of(series.views.back()) : Roles();
  if (roles.ranks.empty()) read_command(series.train_command);
  if (!known) return;
  const auto& all = *series.views.back().processes;
  for (const auto* list : {&roles.ranks, &roles.launchers})
    for (const std::size_t i : *list) {
      read_command(all[i].command);
      if (list == &roles.ranks) break;  // all ranks get the same flags
    }
}

void RunConfig::set(const std::string& key, const std::string& value, const std::string& source) {
  if (value.empty() || value == "null" || values_.count(key) != 0) return;
  values_[key] = {value, source};
}

void RunConfig::read_json(const Json& json, const std::string& source) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) {
      for (const auto& [inner, deep] : value.items())
        if (!deep.is_object()) set(canonical(inner), json_text(deep), source);
    } else if (name == "target_layer_ids" && value.is_array()) {
      set("num_aux", std::to_string(value.size()), source);
    } else {
      set(canonical(name), json_text(value), source);
    }
  }
}

void RunConfig::read_log(const LogFacts& log) {
  const auto take = [&](const char* key, const std::optional<std::int64_t>& value) {
    if (value) set(key, std::to_string(*value), "log");
  };
  take("train_batches", log.train_batches);
  take("val_batches", log.val_batches);
  take("total_steps", log.total_training_steps);
  take("trainable_params", log.trainable_params);
  take("total_params", log.total_params);
  for (const auto& [name, value] : log.settings) set(canonical(name), value, "log");
  if (log.total_steps > 0) set("total_steps", std::to_string(log.total_steps), "log");
}

void RunConfig::read_command(const std::string& command) {
  for (const auto& [key, value] : command_flags(command)) {
    const auto it = values_.find(key);
    if (it == values_.end()) {
      set(key, value, "command line");
    } else if (it->second.source != "command line" && !same_value(it->second.text, value)) {
      const bool number_pair = monitor::number(value) && monitor::number(it->second.text);
      if (number_pair) differences_.push_back({key, value, it->second.text, it->second.source});
    }
  }
}

std::optional<double> RunConfig::number(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? std::nullopt : monitor::number(it->second.text);
}

std::optional<std::string> RunConfig::text(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? std::nullopt : std::optional<std::string>(it->second.text);
}

std::string RunConfig::source(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? std::string() : it->second.source;
}

}  // namespace eaglet::monitor
