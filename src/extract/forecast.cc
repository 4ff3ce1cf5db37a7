#include "extract/forecast.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace eaglet {
namespace {

constexpr std::uint64_t kIdAndMaskBytes = 5;      // beside each token's states
constexpr std::uint64_t kDocumentBytes = 3 * 64;  // head, name, padding, entry in the directory

}  // namespace

Forecast forecast_states(const std::vector<std::int64_t>& document_tokens, std::int64_t slots,
                         std::int64_t hidden) {
  Forecast forecast;
  for (const std::int64_t tokens : document_tokens) {
    ++forecast.documents;
    forecast.tokens += tokens;
  }
  const auto tokens = static_cast<std::uint64_t>(forecast.tokens);
  forecast.state_bytes = tokens * static_cast<std::uint64_t>(slots * hidden) * 2;
  forecast.needed_bytes = forecast.state_bytes + tokens * kIdAndMaskBytes +
                          static_cast<std::uint64_t>(forecast.documents) * kDocumentBytes;
  return forecast;
}

std::string forecast_text(const Forecast& forecast, std::uint64_t free_bytes) {
  std::string text =
      fmt::format("needs about {}, free {}", human_bytes(static_cast<double>(forecast.needed_bytes)),
                  human_bytes(static_cast<double>(free_bytes)));
  if (forecast.needed_bytes > free_bytes)
    text += fmt::format(", short by about {}",
                        human_bytes(static_cast<double>(forecast.needed_bytes - free_bytes)));
  return text;
}

Status check_forecast(const Forecast& forecast, std::uint64_t free_bytes, const std::string& store_path,
                      bool force) {
  if (force || forecast.needed_bytes <= free_bytes) return Status();
  return Status(
      StatusCode::kNoSpace,
      fmt::format("the states of {} documents, {} tokens: {}", forecast.documents, forecast.tokens,
                  forecast_text(forecast, free_bytes)),
      store_path,
      "free some space; or capture fewer layers (--target-layer-ids), cut documents shorter (--max-seq-len), "
      "use fewer conversations, train in parts with --drop-states between them; or go on with --force");
}

}  // namespace eaglet
