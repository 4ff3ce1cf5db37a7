#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/store.h"

namespace eaglet {

/// A document that is not there yet.
struct DocumentSize {
  std::int64_t tokens = 0;                     // after the cut to the length limit
  std::int64_t name_bytes = 8;                 // of its id
  std::int64_t aux_rows = -1, last_rows = -1;  // with dropped rows (KeptRows); -1: all
};

/// What a set of documents will take on the disk, told before any work.
struct Forecast {
  std::int64_t documents = 0, tokens = 0, shards = 0;
  std::uint64_t bytes_per_token = 0;  // of states: slots x width x 2
  std::uint64_t state_bytes = 0;      // the states alone, as they are stored
  std::uint64_t needed_bytes = 0;     // all files of the store, to the byte
  bool exact = true;                  // false: the form's size depends on the numbers (bf16-lossless)
};

/// Share of bf16 that the lossless form took on the states of SmolLM2-135M where documents share no
/// beginning; less where they do (docs/formats/store.md).
constexpr double kLosslessShare = 0.68;

/// The files that a StoreWriter of this header makes of `documents` in this order: headers, heads, ids,
/// masks, names, padding and directories counted.
Forecast forecast_store(const StoreHeader& header, const std::vector<DocumentSize>& documents,
                        const StoreWriterOptions& options = {});

/// "needs about 1.88 GB, free 1.50 GB, short by about 0.38 GB" (the last part only when it does not fit).
std::string forecast_text(const Forecast& forecast, std::uint64_t free_bytes);

/// kNoSpace, naming the levers, when it does not fit; ok with `force`.
Status check_forecast(const Forecast& forecast, std::uint64_t free_bytes, const std::string& store_path,
                      bool force);

}  // namespace eaglet
