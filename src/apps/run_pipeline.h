#pragma once

#include <functional>
#include <map>
#include <string>

#include "apps/command.h"
#include "apps/recipe.h"
#include "apps/run_form.h"
#include "apps/run_paths.h"
#include "apps/stage_record.h"
#include "base/progress.h"

namespace eaglet::apps {

/// The stages of `eaglet run` in their order: generate (or taking given conversations), extract, train,
/// evaluate, export, serve. A stage whose record says "done" with the same settings and inputs is skipped;
/// one that was begun is called again and resumes by itself; one made with other settings is refused (its
/// work would be lost or mixed) unless it is cheap to repeat. The stages' functions print nothing; all talk
/// goes through `progress`.
class RunPipeline {
 public:
  RunPipeline(const Recipe& recipe, const Context& context)
      : recipe_(recipe), context_(context), progress_(*context.progress), paths_(recipe.output_dir) {}

  /// Runs what is not done. The run directory must be locked by the caller. kInterrupted after a signal.
  Status run();
  const RunPaths& paths() const { return paths_; }
  /// Records of the finished stages by name, for the report.
  const std::map<std::string, StageRecord>& records() const { return records_; }
  /// The checkpoint that went on and the file or folder that a server loads, relative to the run directory.
  const std::string& checkpoint() const { return checkpoint_; }
  const std::string& served_draft() const { return form_.draft; }

 private:
  using Work = std::function<Result<Json>()>;
  struct Stage {
    std::string name;
    Json settings, inputs;
    std::string output;       // must exist for the stage to count as done
    bool repeatable = false;  // cheap, and replaces its own output: done again when something changed
  };

  Status do_stage(const Stage& stage, const Work& work);
  std::vector<std::string> unrelated_to_answers() const;
  Json settings_of(const std::string& section, const std::vector<std::string>& without) const;
  Json extract_settings() const;
  ExtractOptions states_options() const;
  bool keeps_states() const;
  Status generate_answers();
  Status take_conversations();
  Status take_given_conversations();
  Status extract_states();
  Status train_draft();
  Result<Json> train_here_or_on_ranks();
  Status evaluate_draft();
  Status drop_states();
  Status export_draft();
  Status serve_draft();
  std::string inside(const std::string& relative) const { return paths_.root + "/" + relative; }

  const Recipe& recipe_;
  const Context& context_;
  Progress& progress_;
  RunPaths paths_;
  RankSettings where_;  // the recipe's, settled
  std::string model_identity_, checkpoint_;
  RunForm form_;
  std::map<std::string, StageRecord> records_;
  int stage_number_ = 0;
};

/// Throws away the results of `stage` and of all later ones (`--redo`). kUsage for an unknown stage.
Status forget_from(const RunPaths& paths, const std::string& stage);

}  // namespace eaglet::apps
