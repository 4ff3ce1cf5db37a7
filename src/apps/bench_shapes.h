#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draft/draft_config.h"

namespace eaglet::apps {

/// A named training shape for `eaglet bench train`.
struct BenchShape {
  std::string name, about;
  DraftConfig config;
  std::int64_t rows = 0, documents = 0, ttt_steps = 0;
  double unsupervised_share = 0;  // of each document, from its start
  bool train_head = false;
  /// Only the embedding rows of the batch's tokens exist, and of the target's head only the draft's rows:
  /// what the work needs of a target whose tables alone would be gigabytes.
  bool small_tables = false;
};

const std::vector<BenchShape>& bench_shapes();

}  // namespace eaglet::apps
