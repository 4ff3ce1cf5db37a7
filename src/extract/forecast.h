#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// What a set of documents will take on the disk, told before any work.
struct Forecast {
  std::int64_t documents = 0, tokens = 0;
  std::uint64_t state_bytes = 0;   // the states alone: tokens x slots x width x 2
  std::uint64_t needed_bytes = 0;  // with ids, masks, heads and padding: what the files will be, within 2 %
};

/// `document_tokens`: lengths after the cut. `slots`: captured layers and the last state.
Forecast forecast_states(const std::vector<std::int64_t>& document_tokens, std::int64_t slots,
                         std::int64_t hidden);

/// "needs about 1.88 GB, free 1.50 GB, short by about 0.38 GB" (the last part only when it does not fit).
std::string forecast_text(const Forecast& forecast, std::uint64_t free_bytes);

/// kNoSpace, naming the levers, when it does not fit; ok with `force`.
Status check_forecast(const Forecast& forecast, std::uint64_t free_bytes, const std::string& store_path,
                      bool force);

}  // namespace eaglet
