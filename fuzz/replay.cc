// Feeds every fuzz target its corpus: each input as it is, cut at many lengths, and with single bits changed,
// the same on every run. So the targets compile, their promises hold and what was found once stays mended
// wherever the tests run; libFuzzer (fuzz/run) goes further.
//   fuzz_replay CORPUS [TARGET...]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#define TARGET(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t bytes);
#include "fuzz_targets.inc"
#undef TARGET

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Target {
  const char* name;
  int (*run)(const std::uint8_t* data, std::size_t bytes);
};

constexpr Target kTargets[] = {
#define TARGET(name) {#name, fuzz_##name},
#include "fuzz_targets.inc"
#undef TARGET
};

// Cuts, and as many changed bits, of one input and of a target's whole corpus: seconds, however large it
// grows.
constexpr std::size_t kMostChanges = 200, kChangesOfTarget = 4000, kFewestChanges = 4;

void feed(const Target& target, const Bytes& input) {
  // A copy of exactly this size: a reader that goes one byte too far is seen by the sanitizers.
  const Bytes exact(input);
  target.run(exact.data(), exact.size());
}

std::size_t feed_changed(const Target& target, const Bytes& input, std::size_t changes) {
  const std::size_t step = input.size() / changes + 1;
  std::size_t count = 1;
  feed(target, input);
  for (std::size_t at = 0; at < input.size(); at += step, count += 2) {
    feed(target, Bytes(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(at)));
    Bytes changed = input;
    changed[at] ^= static_cast<std::uint8_t>(1u << (at % 8));
    feed(target, changed);
  }
  return count;
}

/// Inputs fed; 0: no corpus.
std::size_t replay(const Target& target, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  const std::size_t share = kChangesOfTarget / std::max<std::size_t>(1, files.size());
  const std::size_t changes = std::clamp(share, kFewestChanges, kMostChanges);
  std::size_t count = 0;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const Bytes input((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::fprintf(stderr, "%s %s\n", target.name, path.filename().c_str());  // the last line names a crash
    count += feed_changed(target, input, changes);
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: fuzz_replay CORPUS [TARGET...]\n");
    return 64;
  }
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  for (const Target& target : kTargets) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), target.name) == wanted.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    const std::size_t count = replay(target, std::filesystem::path(argv[1]) / target.name);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%-14s %7zu inputs in %.2f s\n", target.name, count, seconds.count());
    if (count > 0) continue;
    std::fprintf(stderr, "there is no corpus for %s in %s\n", target.name, argv[1]);
    return 1;
  }
  return 0;
}
