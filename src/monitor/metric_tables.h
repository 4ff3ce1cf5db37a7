#pragma once

#include <string>

#include "monitor/log_facts.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Metrics that a trainer keeps in files of its own, for runs whose text log shows none: Lightning's
/// metrics.csv and the log_history of the Hugging Face trainer's newest trainer_state.json. Each is read
/// whole when it changed (Lightning writes it anew when a column is added).
class MetricTables {
 public:
  /// Looks at the files of the output directory (trainer_state.json lies in a checkpoint's folder).
  void poll(const std::vector<FileView>& files);
  bool any() const { return facts_.records > 0; }
  const LogFacts& facts() const { return facts_; }

 private:
  std::string read_;  // path, time and size of what was read last
  LogFacts facts_;
};

/// Rows of a CSV file with a header, as Lightning's logger writes them: a "step" column, empty cells where a
/// metric was not logged. Nothing throws.
LogFacts facts_of_csv(const std::string& text);
/// {"global_step": .., "max_steps": .., "log_history": [{"step": .., "loss": .., "learning_rate": ..}, ..]}
LogFacts facts_of_trainer_state(const std::string& text);

}  // namespace eaglet::monitor
