#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/rank_settings.h"
#include "apps/run_plan.h"
#include "apps/setting.h"
#include "base/status.h"
#include "evaluate/evaluate.h"
#include "export/export.h"
#include "extract/extract.h"
#include "generate/generate.h"
#include "train/train.h"

namespace eaglet::apps {

struct RecipeField {
  std::string section, key;  // key = the flag's name in snake_case
  SettingTarget target;
  bool is_input_path =
      false;  // in a recipe file: relative to that file; on the command line: to where we are
  std::string name() const { return section + "." + key; }
};

/// Everything `eaglet run` does, as it stands in a recipe (docs/recipes.md). Paths inside the run directory
/// are filled in by the run itself.
class Recipe {
 public:
  Recipe() = default;
  Recipe(const Recipe&) = delete;  // the field table points into this object
  Recipe& operator=(const Recipe&) = delete;

  std::string output_dir;  // [run]
  std::string prompts_path;
  std::string conversations_path;  // given answers: generate is skipped
  bool drop_states = false;
  bool keep_states = true;  // the native engine's states, while it answers
  int threads = 0;
  RankSettings where;  // its device: of train and evaluate; the ranks only train
  bool shard_optimizer = false;
  std::string model_path;  // [model]
  GenerateOptions generate;
  ExtractOptions extract;
  TrainOptions train;
  EvaluateOptions evaluate;
  std::string checkpoint = "best";   // [evaluate] best | latest
  std::string export_to = "auto";    // [export] gguf | speculators | sglang; auto: by the target
  std::string export_type = "q8_0";  // of a GGUF: f32 | f16 | q8_0
  std::string export_dtype = "f32";  // of the other layouts: f32 | bf16 | f16
  bool speculators = false;          // the speculators layout too
  std::string verifier;              // written there; empty: the target's folder
  bool serve_enabled = true;         // [serve]
  std::string serve_with = "auto";   // llama | native; auto: by the target
  std::string serve_type = "as-is";  // the target as it is served: as-is | f16
  std::int64_t serve_max_prompts = 0;
  ServeOptions serve;
  PlanFacts plan;  // [plan]: for --plan only

  /// Reads a recipe file over what is set. kConfig with file, line and the nearest known key; kNotFound.
  Status read(const std::string& path);
  /// One `section.key=value` from the command line, value in TOML (a bare word is a string). kUsage.
  Status set(const std::string& assignment);
  /// What cannot be, over all sections; called once everything is set.
  Status check() const;
  /// The resolved recipe as TOML; `sources`: with a comment that says where each value came from.
  std::string to_toml(bool sources) const;
  /// One section's keys and values, to tell whether a finished stage was made with the same settings.
  std::map<std::string, std::string> section_values(const std::string& section) const;

  std::vector<RecipeField> fields();

 private:
  std::vector<RecipeField> fields() const { return const_cast<Recipe*>(this)->fields(); }
  std::map<std::string, std::string> sources_;  // field name -> "recipe" or "flag"
};

}  // namespace eaglet::apps
