#include "monitor/judgement.h"

namespace eaglet::monitor {

const char* level_word(Level level) {
  constexpr const char* words[] = {"ok", "warn", "crit", "unknown"};
  return words[static_cast<int>(level)];
}

const char* layer_word(Layer layer) {
  constexpr const char* words[] = {"process", "hardware", "config", "learning"};
  return words[static_cast<int>(layer)];
}

Level worse(Level a, Level b) {
  if (a == Level::kUnknown) return b;
  if (b == Level::kUnknown) return a;
  return a > b ? a : b;
}

namespace {
Judgement judgement(Layer layer, const char* name, Level level, std::string reason) {
  Judgement j;
  j.name = name;
  j.layer = layer;
  j.level = level;
  j.reason = std::move(reason);
  return j;
}
}  // namespace

Judgement process_judgement(const char* name, Level level, std::string reason) {
  return judgement(Layer::kProcess, name, level, std::move(reason));
}
Judgement hardware_judgement(const char* name, Level level, std::string reason) {
  return judgement(Layer::kHardware, name, level, std::move(reason));
}
Judgement configuration_judgement(const char* name, Level level, std::string reason) {
  return judgement(Layer::kConfiguration, name, level, std::move(reason));
}
Judgement learning_judgement(const char* name, Level level, std::string reason) {
  return judgement(Layer::kLearning, name, level, std::move(reason));
}

}  // namespace eaglet::monitor
