#pragma once

#include <limits>
#include <string>
#include <vector>

namespace eaglet::monitor {

/// In the order of Nagios plugins, which is also the order of exit codes. Unknown never counts as ok.
enum class Level { kOk, kWarn, kCrit, kUnknown };
/// Layers are judged in this order; the first bad one is the headline.
enum class Layer { kProcess, kHardware, kConfiguration, kLearning };

const char* level_word(Level level);  // "ok", "warn", "crit", "unknown"
const char* layer_word(Layer layer);  // "process", "hardware", "config", "learning"
/// The worse of two: crit, then warn, then ok; unknown only stands when nothing else is known.
Level worse(Level a, Level b);

/// One signal, judged. Text fields may be empty; `value` is NaN when the signal has no number.
struct Judgement {
  std::string name;  // as docs/watch.md lists it: "packing", "power", "first_loss"
  Layer layer = Layer::kProcess;
  Level level = Level::kUnknown;
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string unit;
  double window_seconds = 0;  // 0: the whole run so far
  std::string threshold;      // "warn < 0.7"
  std::string reason;         // one sentence with the numbers
  std::string advice;         // what to change
  std::string next;           // the next command to run
  bool own_next = false;      // the judge named it: it mends or proves, and does not only show more
};

using Judgements = std::vector<Judgement>;

/// One of a layer, without numbers yet.
Judgement process_judgement(const char* name, Level level, std::string reason);
Judgement hardware_judgement(const char* name, Level level, std::string reason);
Judgement configuration_judgement(const char* name, Level level, std::string reason);
Judgement learning_judgement(const char* name, Level level, std::string reason);

/// All layers, lowest first: a verdict names the first bad one.
inline constexpr Layer kLayers[] = {Layer::kProcess, Layer::kHardware, Layer::kConfiguration,
                                    Layer::kLearning};

}  // namespace eaglet::monitor
