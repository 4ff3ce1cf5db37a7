#pragma once

#include <functional>
#include <memory>

#include "base/progress.h"
#include "base/status.h"
#include "evaluate/evaluate.h"
#include "evaluate/serve_difference.h"
#include "verifier/generator.h"

namespace eaglet {

/// A target and its draft in memory that answer many prompts at once.
struct BatchServeEngine {
  /// For requests of at most `longest` tokens; draft_length 0: without the draft.
  std::function<Result<std::unique_ptr<Generator>>(std::size_t requests, std::int64_t longest,
                                                   std::int64_t draft_length)>
      generator;
  LogitsAfter logits_after;
  std::int64_t at_once = 1;  // sequences decoded together
  double temperature = 0;    // what the generators sample at; the seed of a prompt is its place
};

/// As serve(), but with many prompts at once: acceptance over thousands of them. Seconds are those of all
/// answers together, prompts included. Sampled answers are counted, not compared. The errors of serve().
Result<ServeReport> serve_native(const ServeOptions& options, const BatchServeEngine& engine,
                                 Progress& progress);

}  // namespace eaglet
