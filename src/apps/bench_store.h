#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "apps/command.h"

namespace eaglet::apps {

/// `eaglet bench store`: how fast states are written and read in each form, and what a large store costs.
struct BenchStoreFlags {
  std::string store_path;  // real states to measure with; empty: made-up ones
  std::string directory;  // where the stores are made; empty: the temporary folder, the large one in /dev/shm
  std::int64_t megabytes = 256, repeats = 3;
  std::int64_t documents = 37312, large_terabytes = 5;  // of the large store; 0 documents: none
};
CLI::App* add_bench_store(CLI::App& app, BenchStoreFlags* flags);
Status bench_store(const BenchStoreFlags& flags, const Context& context);

}  // namespace eaglet::apps
