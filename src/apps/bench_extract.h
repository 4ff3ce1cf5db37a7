#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "apps/command.h"

namespace eaglet::apps {

/// `eaglet bench extract`: how fast the native engine runs a target.
struct BenchExtractFlags {
  std::string model, compute_type = "auto", memory, directory;
  std::int64_t tokens = 8192, document_tokens = 256, streamed_layers = 0;
  int threads = 0, passes = 0;  // passes: 0 = 2
  bool deterministic = true;
};
/// Adds the subcommand; it was asked for when parsed() of what comes back.
CLI::App* add_bench_extract(CLI::App& app, BenchExtractFlags* flags);
Status bench_extract(const BenchExtractFlags& flags, const Context& context);

}  // namespace eaglet::apps
