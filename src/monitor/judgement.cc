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

}  // namespace eaglet::monitor
