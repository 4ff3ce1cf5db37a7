#include "apps/recipe.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "apps/cache_dir.h"
#include "apps/suggest.h"
#include "apps/train_setting_table.h"
#include "base/files.h"
#include "formats/json.h"

namespace eaglet::apps {
namespace {
namespace fs = std::filesystem;

template <class T>
std::string list_text(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

/// The value as TOML.
std::string value_text(const SettingTarget& target) {
  struct Visitor {
    std::string operator()(const std::string* v) const {
      return Json(*v).dump();
    }  // JSON strings are TOML strings
    std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(const std::int64_t* v) const { return std::to_string(*v); }
    std::string operator()(const int* v) const { return std::to_string(*v); }
    std::string operator()(const std::uint64_t* v) const { return std::to_string(*v); }
    std::string operator()(const double* v) const {
      const std::string text = fmt::format("{}", *v);
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::vector<std::int32_t>* v) const { return list_text(*v); }
    std::string operator()(const std::vector<std::int64_t>* v) const { return list_text(*v); }
    std::string operator()(const std::vector<std::string>* v) const { return Json(*v).dump(); }
  };
  return std::visit(Visitor{}, target);
}

/// What a target wants, for errors.
std::string wanted(const SettingTarget& target) {
  const char* names[] = {"a string",
                         "true or false",
                         "a whole number",
                         "a whole number",
                         "a whole number >= 0",
                         "a number",
                         "a list of whole numbers",
                         "a list of whole numbers",
                         "a list of strings"};
  return names[target.index()];
}

template <class T>
bool assign_list(const toml::node& node, std::vector<T>* out) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return false;
  std::vector<T> values;
  for (const toml::node& item : *list) {
    if (!item.is_integer()) return false;
    values.push_back(static_cast<T>(item.as_integer()->get()));
  }
  *out = std::move(values);
  return true;
}

/// A list of strings, or one string alone.
bool assign_texts(const toml::node& node, std::vector<std::string>* out) {
  std::vector<std::string> values;
  if (node.is_string()) values.push_back(node.as_string()->get());
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list) {
      if (!item.is_string()) return false;
      values.push_back(item.as_string()->get());
    }
  } else if (!node.is_string()) {
    return false;
  }
  *out = std::move(values);
  return true;
}

/// False when the node is not of the target's kind.
bool assign(const toml::node& node, const SettingTarget& target) {
  const auto whole = [&](auto* out, bool negative_fits) {
    if (!node.is_integer() || (!negative_fits && node.as_integer()->get() < 0)) return false;
    *out = static_cast<std::remove_pointer_t<decltype(out)>>(node.as_integer()->get());
    return true;
  };
  struct Visitor {
    const toml::node& node;
    decltype(whole)& whole_number;
    bool operator()(std::string* v) const {
      return node.is_string() && ((*v = node.as_string()->get()), true);
    }
    bool operator()(bool* v) const { return node.is_boolean() && ((*v = node.as_boolean()->get()), true); }
    bool operator()(std::int64_t* v) const { return whole_number(v, true); }
    bool operator()(int* v) const { return whole_number(v, true); }
    bool operator()(std::uint64_t* v) const { return whole_number(v, false); }
    bool operator()(double* v) const {
      const auto number = node.value<double>();
      if (number && node.is_number()) *v = *number;
      return number && node.is_number();
    }
    bool operator()(std::vector<std::int32_t>* v) const { return assign_list(node, v); }
    bool operator()(std::vector<std::int64_t>* v) const { return assign_list(node, v); }
    bool operator()(std::vector<std::string>* v) const { return assign_texts(node, v); }
  };
  return std::visit(Visitor{node, whole}, target);
}

/// An input path as the user means it: absolute, or relative to `base`. A model given by a bare name is also
/// looked for in the cache, where scripts/setup puts the sample model.
std::string resolve_input(const RecipeField& field, const std::string& value, const fs::path& base) {
  if (value.empty()) return value;
  const fs::path path = fs::absolute(base / value).lexically_normal();
  const bool bare = value.find('/') == std::string::npos;
  if (field.section == "model" && bare && !path_exists(path.string())) return cache_dir() + "/" + value;
  return path.string();
}

std::string place_of(const std::string& path, const toml::source_region& source) {
  return fmt::format("{}:{}", path, source.begin.line);
}

Status unknown_name(const std::string& kind, const std::string& name, const std::vector<std::string>& known,
                    const std::string& where) {
  const std::string nearest = nearest_name(name, known);
  return Status(StatusCode::kConfig, "unknown " + kind + " '" + name + "'", where,
                nearest.empty() ? fmt::format("known here: {}", fmt::join(known, ", "))
                                : "did you mean '" + nearest + "'?");
}

Status must_be_one_of(const std::string& name, const std::string& value,
                      const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return {};
  return Status(StatusCode::kConfig,
                fmt::format("{} = \"{}\" is not one of {}", name, value, fmt::join(allowed, ", ")));
}

Status must_be_at_least(const std::string& name, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return Status(StatusCode::kConfig, fmt::format("{} = {} is too small", name, value), {},
                fmt::format("give at least {}", least));
}

}  // namespace

std::vector<RecipeField> Recipe::fields() {
  GenerateOptions& g = generate;
  ExtractOptions& x = extract;
  std::vector<RecipeField> all = {
      {"run", "output_dir", &output_dir},
      {"run", "prompts", &prompts_path, true},
      {"run", "conversations", &conversations_path, true},
      {"run", "drop_states", &drop_states},
      {"run", "threads", &threads},
      {"run", "device", &where.device},
      {"run", "gpus", &where.gpus},
      {"run", "ranks", &where.ranks},
      {"run", "rank_timeout", &where.rank_timeout_seconds},
      {"run", "shard_optimizer", &shard_optimizer},
      {"model", "path", &model_path, true},
      {"generate", "max_prompts", &g.max_prompts},
      {"generate", "max_tokens", &g.max_tokens},
      {"generate", "temperature", &g.temperature},
      {"generate", "top_p", &g.top_p},
      {"generate", "seed", &g.seed},
      {"generate", "parallel", &g.parallel},
      {"generate", "weights", &g.weights},
      {"generate", "engine", &g.engine},
      {"generate", "compute_type", &g.compute_type},
      {"generate", "memory", &g.memory},
      {"generate", "tokenizer", &g.tokenizer_path, true},
      {"generate", "keep_states", &keep_states},
      {"generate", "top_k", &g.top_k},
      {"generate", "min_p", &g.min_p},
      {"generate", "repetition_penalty", &g.repetition_penalty},
      {"generate", "server", &g.servers},
      {"generate", "served_model", &g.served.model},
      {"generate", "server_kind", &g.served.kind},
      {"generate", "api_key_env", &g.served.api_key_env},
      {"generate", "ca_file", &g.served.ca_file, true},
      {"generate", "concurrency", &g.served.concurrency},
      {"generate", "timeout", &g.served.timeout_seconds},
      {"generate", "tries", &g.served.tries},
      {"generate", "wait_ready", &g.served.wait_ready_seconds},
      {"generate", "expect_thinking", &g.served.expect_thinking},
      {"generate", "regenerate", &g.served.regenerate},
      {"generate", "cut", &g.served.cut},
      {"generate", "request_json", &g.served.request_json},
      {"generate", "chat_template", &g.served.template_path, true},
      {"extract", "target_layer_ids", &x.target_layer_ids},
      {"extract", "max_seq_len", &x.max_seq_len},
      {"extract", "shard_bytes", &x.shard_bytes},
      {"extract", "store_dtype", &x.store_dtype},
      {"extract", "drop_unsupervised", &x.drop_unsupervised},
      {"extract", "weights", &x.weights},
      {"extract", "spill", &x.spill_directory},
      {"extract", "server", &x.servers},
      {"extract", "states_dir", &x.server.states_dir, true},
      {"extract", "served_model", &x.server.model},
      {"extract", "server_kind", &x.server.kind},
      {"extract", "api_key_env", &x.server.api_key_env},
      {"extract", "ca_file", &x.server.ca_file, true},
      {"extract", "concurrency", &x.server.concurrency},
      {"extract", "timeout", &x.server.timeout_seconds},
      {"extract", "tries", &x.server.tries},
      {"extract", "wait_ready", &x.server.wait_ready_seconds},
      {"extract", "wait_seconds", &x.server.wait_seconds},
      {"extract", "force", &x.force},
  };
  for (Setting& setting : train_setting_table(train))
    all.push_back({"train", std::move(setting.key), setting.target, setting.is_input_path});
  const std::vector<RecipeField> later = {
      {"evaluate", "ttt_steps", &evaluate.ttt_steps},
      {"evaluate", "max_seq_len", &evaluate.max_seq_len},
      {"evaluate", "checkpoint", &checkpoint},
      {"export", "to", &export_to},
      {"export", "type", &export_type},
      {"export", "dtype", &export_dtype},
      {"export", "speculators", &speculators},
      {"export", "verifier", &verifier},
      {"serve", "enabled", &serve_enabled},
      {"serve", "with", &serve_with},
      {"serve", "type", &serve_type},
      {"serve", "draft_lengths", &serve.draft_lengths},
      {"serve", "max_prompts", &serve_max_prompts},
      {"serve", "max_tokens", &serve.max_tokens},
      {"plan", "hidden_size", &plan.hidden_size},
      {"plan", "num_layers", &plan.num_layers},
      {"plan", "vocab_size", &plan.vocab_size},
      {"plan", "num_heads", &plan.num_heads},
      {"plan", "num_kv_heads", &plan.num_kv_heads},
      {"plan", "head_dim", &plan.head_dim},
      {"plan", "intermediate_size", &plan.intermediate_size},
      {"plan", "active_params_billion", &plan.active_params_billion},
      {"plan", "prompts", &plan.prompts},
      {"plan", "prompt_tokens", &plan.prompt_tokens},
      {"plan", "answer_tokens", &plan.answer_tokens},
      {"plan", "server_tokens_per_second", &plan.server_tokens_per_second},
      {"plan", "extract_tokens_per_second", &plan.extract_tokens_per_second},
      {"plan", "train_teraflops", &plan.train_teraflops},
      {"plan", "ranks", &plan.ranks},
      {"plan", "free_terabytes", &plan.free_terabytes},
  };
  all.insert(all.end(), later.begin(), later.end());
  return all;
}

Status Recipe::read(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  toml::table document;
  try {
    document = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return Status(StatusCode::kConfig, "not a recipe: " + std::string(error.description()),
                  place_of(path, error.source()), "write it as TOML; recipes/quickstart.toml is an example");
  }
  const std::vector<RecipeField> known = fields();
  std::vector<std::string> sections;
  for (const RecipeField& field : known)
    if (sections.empty() || sections.back() != field.section) sections.push_back(field.section);
  const fs::path base = fs::absolute(path).parent_path();
  for (const auto& [section_key, section_node] : document) {
    const std::string section(section_key.str());
    const toml::table* table = section_node.as_table();
    if (table == nullptr || std::find(sections.begin(), sections.end(), section) == sections.end())
      return unknown_name("section", section, sections, place_of(path, section_key.source()));
    std::vector<std::string> keys;
    for (const RecipeField& field : known)
      if (field.section == section) keys.push_back(field.key);
    for (const auto& [key, node] : *table) {
      const std::string place = place_of(path, key.source());
      const auto field =
          std::find_if(known.begin(), known.end(), [&, name = std::string(key.str())](const RecipeField& f) {
            return f.section == section && f.key == name;
          });
      if (field == known.end())
        return unknown_name("key", std::string(key.str()), keys, place + ", section [" + section + "]");
      if (!assign(node, field->target))
        return Status(StatusCode::kConfig, field->name() + " is not " + wanted(field->target), place);
      if (field->is_input_path) {
        std::string* value = std::get<std::string*>(field->target);
        *value = resolve_input(*field, *value, base);
      }
      sources_[field->name()] = "recipe";
    }
  }
  return {};
}

Status Recipe::set(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos)
    return Status(StatusCode::kUsage, "--set " + assignment + " has no '='", {},
                  "write --set train.epochs=2");
  const std::string name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  const std::vector<RecipeField> known = fields();
  const auto field =
      std::find_if(known.begin(), known.end(), [&](const RecipeField& f) { return f.name() == name; });
  if (field == known.end()) {
    std::vector<std::string> names;
    for (const RecipeField& f : known) names.push_back(f.name());
    const std::string nearest = nearest_name(name, names);
    return Status(StatusCode::kUsage, "--set: unknown key '" + name + "'", {},
                  nearest.empty() ? "eaglet run --print-config RECIPE lists all keys"
                                  : "did you mean '" + nearest + "'?");
  }
  toml::table parsed;
  try {
    parsed = toml::parse("value = " + value);
  } catch (const toml::parse_error&) {
    parsed = toml::table{{"value", value}};  // a bare word
  }
  const bool wants_text = std::holds_alternative<std::string*>(field->target);
  if (wants_text && !parsed["value"].is_string())
    parsed = toml::table{{"value", value}};  // --set run.output_dir=2024
  if (!assign(*parsed.get("value"), field->target))
    return Status(StatusCode::kUsage,
                  "--set " + assignment + ": " + name + " is not " + wanted(field->target));
  if (field->is_input_path) {
    std::string* text = std::get<std::string*>(field->target);
    *text = resolve_input(*field, *text, fs::current_path());
  }
  sources_[name] = "flag";
  return {};
}

Status Recipe::check() const {
  const auto missing = [](const std::string& what, const std::string& todo) {
    return Status(StatusCode::kConfig, "the recipe does not say " + what, {}, todo);
  };
  if (output_dir.empty()) return missing("where to work", "set output_dir in [run], or give --output-dir");
  if (model_path.empty()) return missing("which target model", "set path in [model], or give --model");
  if (prompts_path.empty() && conversations_path.empty())
    return missing("what to train on",
                   "set prompts (to be answered) or conversations (answers that are there) in [run]");
  if (!prompts_path.empty() && !conversations_path.empty())
    return Status(StatusCode::kConfig, "the recipe names both prompts and conversations", {},
                  "keep one: prompts are answered first, conversations are taken as they are");
  EAGLET_RETURN_IF_ERROR(must_be_at_least("run.gpus", where.gpus, 0));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("run.ranks", where.ranks, 0));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("generate.max_tokens", generate.max_tokens, 1));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("generate.parallel", generate.parallel, 0));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("train.max_seq_len", train.max_seq_len, 2));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("train.ttt_steps", train.ttt_steps, 1));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("train.draft_vocab_size", train.draft_vocab_size, 0));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("train.hold_out_every", train.hold_out_every, 0));
  EAGLET_RETURN_IF_ERROR(must_be_at_least("evaluate.ttt_steps", evaluate.ttt_steps, 1));
  EAGLET_RETURN_IF_ERROR(must_be_one_of("evaluate.checkpoint", checkpoint, {"best", "latest"}));
  EAGLET_RETURN_IF_ERROR(must_be_one_of("export.to", export_to, {"auto", "gguf", "speculators", "sglang"}));
  EAGLET_RETURN_IF_ERROR(must_be_one_of("export.type", export_type, {"f32", "f16", "q8_0"}));
  EAGLET_RETURN_IF_ERROR(must_be_one_of("export.dtype", export_dtype, {"f32", "bf16", "f16"}));
  EAGLET_RETURN_IF_ERROR(must_be_one_of("serve.with", serve_with, {"auto", "llama", "native"}));
  EAGLET_RETURN_IF_ERROR(must_be_one_of("serve.type", serve_type, {"as-is", "f16"}));
  if (serve_enabled && serve.draft_lengths.empty())
    return Status(StatusCode::kConfig, "serve.draft_lengths is empty", {},
                  "give lengths such as [1, 2, 3], or enabled = false");
  for (const std::int64_t length : serve.draft_lengths)
    EAGLET_RETURN_IF_ERROR(must_be_at_least("serve.draft_lengths", length, 1));
  return {};
}

std::string Recipe::to_toml(bool sources) const {
  std::string out, section;
  for (const RecipeField& field : fields()) {
    if (field.section != section) out += (section.empty() ? "[" : "\n[") + field.section + "]\n";
    section = field.section;
    const std::string line = field.key + " = " + value_text(field.target);
    const auto source = sources_.find(field.name());
    out += !sources
               ? line + "\n"
               : fmt::format("{:<48} # {}\n", line, source == sources_.end() ? "default" : source->second);
  }
  return out;
}

std::map<std::string, std::string> Recipe::section_values(const std::string& section) const {
  std::map<std::string, std::string> values;
  for (const RecipeField& field : fields())
    if (field.section == section) values[field.key] = value_text(field.target);
  return values;
}

}  // namespace eaglet::apps
