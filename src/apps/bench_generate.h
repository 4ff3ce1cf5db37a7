#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "apps/command.h"

namespace eaglet::apps {

/// `eaglet bench generate`: what a request to a server costs us.
struct BenchGenerateFlags {
  std::int64_t requests = 10000, concurrency = 64, answer_tokens = 200;
};
/// Adds the subcommand; it was asked for when parsed() of what comes back.
CLI::App* add_bench_generate(CLI::App& app, BenchGenerateFlags* flags);
Status bench_generate(const BenchGenerateFlags& flags, const Context& context);

}  // namespace eaglet::apps
