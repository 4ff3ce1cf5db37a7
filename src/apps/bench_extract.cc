#include "apps/bench_extract.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "apps/made_up_target.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/memory_amount.h"
#include "base/rng.h"
#include "device/compute_type.h"
#include "device/threads.h"
#include "extract/native_states.h"
#include "formats/json.h"
#include "target/target_forward.h"

namespace eaglet::apps {
namespace {

using Documents = std::vector<std::vector<std::int32_t>>;

Documents random_documents(const BenchExtractFlags& flags, std::int64_t vocab) {
  Rng rng(1);
  Documents documents;
  for (std::int64_t left = flags.tokens; left > 0; left -= flags.document_tokens) {
    documents.emplace_back(static_cast<std::size_t>(std::min(left, flags.document_tokens)));
    for (std::int32_t& id : documents.back())
      id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab)));
  }
  return documents;
}

// Of a token: the layers' weights, and attention to the half of its document that is before it.
double gflop_per_token(const TargetForward& target, const BenchExtractFlags& flags, std::int64_t layers) {
  const TargetConfig& c = target.config();
  const double value =
      c.latent.kv_rank > 0 ? static_cast<double>(c.latent.value_dim) : static_cast<double>(c.head_dim);
  const double seen = static_cast<double>(std::min(flags.tokens, flags.document_tokens) + 1) / 2;
  const double attention =
      2 * static_cast<double>(c.num_heads) * (static_cast<double>(c.head_dim) + value) * seen;
  const double share = static_cast<double>(layers) / static_cast<double>(c.num_layers);
  return (share * target.flops_per_token() + static_cast<double>(layers) * attention) / 1e9;
}

struct PassTime {
  double embed = 0, layers = 0;  // seconds
};

Result<PassTime> time_pass(TargetForward* target, const Documents& documents, std::int64_t layers,
                           const std::string& what, Progress& progress) {
  std::vector<const std::vector<std::int32_t>*> pointers;
  for (const auto& document : documents) pointers.push_back(&document);
  progress.begin(what, static_cast<std::uint64_t>(layers), "layers");
  const double begin = monotonic_seconds();
  PassTime time;
  EAGLET_RETURN_IF_ERROR(target->run(pointers, layers, [&](std::int64_t k, const float*) {
    if (k == 0) time.embed = monotonic_seconds() - begin;
    if (k > 0) progress.update(static_cast<std::uint64_t>(k));
    return Status();
  }));
  time.layers = monotonic_seconds() - begin - time.embed;
  progress.end(fmt::format("{} layers in {:.2f} s", layers, time.layers));
  return time;
}

double peak_rss_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

Result<ForwardOptions> arithmetic(const BenchExtractFlags& flags) {
  ForwardOptions options;
  options.deterministic = flags.deterministic;
  options.compute_type = multiplies_bf16() ? ComputeType::kBf16 : ComputeType::kF32;
  if (flags.compute_type != "auto") {
    EAGLET_ASSIGN_OR_RETURN(options.compute_type, parse_compute_type(flags.compute_type));
  }
  return options;
}

Status check_memory(const TargetForward& target, const BenchExtractFlags& flags) {
  if (flags.memory.empty()) return {};
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t memory, parse_memory(flags.memory));
  const std::uint64_t needed = target.fixed_bytes(flags.document_tokens) +
                               target.bytes_per_token() * static_cast<std::uint64_t>(flags.tokens);
  if (needed <= memory) return {};
  return Status(
      StatusCode::kNoSpace,
      fmt::format("{} tokens need {} of memory", flags.tokens, human_bytes(static_cast<double>(needed))),
      "--memory", "give more, or fewer --tokens");
}

// A model that is there: passes one after another, the best counts.
Status bench_model(const BenchExtractFlags& flags, const Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const ForwardOptions options, arithmetic(flags));
  EAGLET_ASSIGN_OR_RETURN(const auto target, TargetForward::open(flags.model, options));
  EAGLET_RETURN_IF_ERROR(check_memory(*target, flags));
  const Documents documents = random_documents(flags, target->config().vocab);
  const std::int64_t layers = target->config().num_layers;
  PassTime best{1e30, 1e30};
  for (int pass = 0; pass < (flags.passes > 0 ? flags.passes : 2); ++pass) {
    EAGLET_ASSIGN_OR_RETURN(const PassTime time,
                            time_pass(target.get(), documents, layers, "pass", *context.progress));
    if (time.embed + time.layers < best.embed + best.layers) best = time;
  }
  const double peak = measured_product_flops(options.compute_type) / 1e9;
  const double seconds = best.embed + best.layers, rate = static_cast<double>(flags.tokens) / seconds,
               gflop = gflop_per_token(*target, flags, layers);
  if (context.json) {
    fmt::print("{}\n", json_line({{"schema", 1},
                                  {"model", flags.model},
                                  {"threads", num_threads()},
                                  {"compute_type", compute_type_name(options.compute_type)},
                                  {"deterministic", options.deterministic},
                                  {"tokens", flags.tokens},
                                  {"document_tokens", flags.document_tokens},
                                  {"tokens_per_second", rate},
                                  {"needed_gflop_per_token", gflop},
                                  {"gemm_peak_gflops", peak},
                                  {"share_of_peak", gflop * rate / peak},
                                  {"peak_rss_bytes", peak_rss_bytes()}}));
    return {};
  }
  fmt::print("{} tokens in documents of {}: {:.0f} tokens/s, products in {} on {} threads\n", flags.tokens,
             flags.document_tokens, rate, compute_type_name(options.compute_type), num_threads());
  fmt::print(
      "needed work      {:.3f} GFLOP a token, {:.0f} GFLOP/s = {:.0f} % of this machine's GEMM peak "
      "({:.0f})\n",
      gflop, gflop * rate, 100 * gflop * rate / peak, peak);
  fmt::print("peak memory      {}\n", human_bytes(peak_rss_bytes()));
  return {};
}

struct MadeUpFolder {
  std::string path;
  ~MadeUpFolder() { static_cast<void>(remove_all(path).ok()); }
};

Status forget_cached(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno_status("open the file", entry.path().string(), errno);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  return {};
}

// Bytes per second of reading the files from the disk, a large block at a time.
Result<double> disk_speed(const std::string& directory) {
  EAGLET_RETURN_IF_ERROR(forget_cached(directory));
  std::vector<char> block(std::size_t{8} << 20);
  double bytes = 0;
  const double begin = monotonic_seconds();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno_status("open the file", entry.path().string(), errno);
    for (ssize_t got = 1; got > 0 && !interrupted();) {
      got = ::read(fd, block.data(), block.size());
      bytes += static_cast<double>(std::max<ssize_t>(got, 0));
    }
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    if (monotonic_seconds() - begin > 20) break;  // long enough to know
  }
  return bytes / (monotonic_seconds() - begin);
}

Status check_disk(const std::string& directory, std::int64_t layers) {
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t free, free_disk_bytes(directory));
  const std::uint64_t needed = made_up_target_bytes(layers) + (std::uint64_t{1} << 30);
  if (needed <= free) return {};
  return Status(StatusCode::kNoSpace,
                fmt::format("{} of weights do not fit into {} of free disk",
                            human_bytes(static_cast<double>(needed)), human_bytes(static_cast<double>(free))),
                directory, "give fewer --streamed-layers or another --directory");
}

void print_streamed(const BenchExtractFlags& flags, const Context& context, const PassTime& streamed,
                    const PassTime& cut, std::int64_t cut_layers, double disk, double rss, double gflop) {
  const auto layers = static_cast<double>(flags.streamed_layers), tokens = static_cast<double>(flags.tokens);
  const double bytes = static_cast<double>(made_up_target_bytes(flags.streamed_layers)),
               per_layer = streamed.layers / layers, in_memory = cut.layers / static_cast<double>(cut_layers),
               from_disk = bytes / layers / disk;
  const double bound = std::max(in_memory, from_disk);
  if (context.json) {
    fmt::print("{}\n", json_line({{"schema", 1},
                                  {"weights_bytes", bytes},
                                  {"layers", flags.streamed_layers},
                                  {"tokens", flags.tokens},
                                  {"streamed_seconds_per_layer", per_layer},
                                  {"in_memory_seconds_per_layer", in_memory},
                                  {"disk_seconds_per_layer", from_disk},
                                  {"disk_bytes_per_second", disk},
                                  {"share_of_what_binds", bound / per_layer},
                                  {"tokens_per_second", tokens / streamed.layers},
                                  {"needed_gflop_per_token", gflop},
                                  {"peak_rss_bytes", rss}}));
    return;
  }
  fmt::print("{} of weights, {} layers of Qwen3-30B-A3B's shapes, {} tokens a pass, cache dropped before\n",
             human_bytes(bytes), flags.streamed_layers, flags.tokens);
  fmt::print("streamed         {:.2f} s a layer ({:.0f} tokens/s in all, {:.0f} GFLOP/s), {} peak memory\n",
             per_layer, tokens / streamed.layers, gflop * tokens / streamed.layers, human_bytes(rss));
  fmt::print("in memory        {:.2f} s a layer (the first {} layers, cached)\n", in_memory, cut_layers);
  fmt::print("the disk alone   {:.2f} s a layer ({}/s)\n", from_disk, human_bytes(disk));
  fmt::print("{:.0f} % of the speed of what binds: {}\n", 100 * bound / per_layer,
             in_memory > from_disk ? "the arithmetic" : "the disk");
}

// A model larger than the memory it may use, from the disk; then a part of it that stays in the cache.
Status bench_streamed(const BenchExtractFlags& flags, const Context& context) {
  const std::string parent =
      flags.directory.empty() ? std::filesystem::temp_directory_path().string() : flags.directory;
  EAGLET_RETURN_IF_ERROR(check_disk(parent, flags.streamed_layers));
  const MadeUpFolder folder{parent + "/eaglet-bench-target-" + std::to_string(::getpid())};
  context.progress->note(fmt::format(
      "{} go into {}, which is removed at the end",
      human_bytes(static_cast<double>(made_up_target_bytes(flags.streamed_layers))), folder.path));
  EAGLET_RETURN_IF_ERROR(write_made_up_target(folder.path, flags.streamed_layers, *context.progress));
  EAGLET_ASSIGN_OR_RETURN(const ForwardOptions options, arithmetic(flags));
  EAGLET_ASSIGN_OR_RETURN(const auto target, TargetForward::open(folder.path, options));
  EAGLET_RETURN_IF_ERROR(check_memory(*target, flags));
  const Documents documents = random_documents(flags, target->config().vocab);
  EAGLET_RETURN_IF_ERROR(forget_cached(folder.path));
  EAGLET_ASSIGN_OR_RETURN(const PassTime streamed, time_pass(target.get(), documents, flags.streamed_layers,
                                                             "streamed from the disk", *context.progress));
  const double rss = peak_rss_bytes();
  EAGLET_ASSIGN_OR_RETURN(const double disk, disk_speed(folder.path));
  const std::int64_t cut = std::min<std::int64_t>(flags.streamed_layers, 4);
  PassTime in_memory;
  for (const char* what : {"a part, read into the cache", "the same part, cached"}) {
    EAGLET_ASSIGN_OR_RETURN(in_memory, time_pass(target.get(), documents, cut, what, *context.progress));
  }
  print_streamed(flags, context, streamed, in_memory, cut, disk, rss,
                 gflop_per_token(*target, flags, flags.streamed_layers));
  return {};
}

}  // namespace

CLI::App* add_bench_extract(CLI::App& app, BenchExtractFlags* flags) {
  CLI::App* extract =
      app.add_subcommand("extract", "the native engine: tokens/s of a target, share of the GEMM peak");
  extract->add_option("--model", flags->model, "a GGUF file or a transformers folder");
  extract
      ->add_option("--streamed-layers", flags->streamed_layers,
                   "instead: write a made-up target of so many layers (1.25 GB each), run it from the disk "
                   "and remove it; 24 = 30 GB")
      ->check(CLI::Range(1, 1000));
  extract->add_option("--directory", flags->directory,
                      "where the made-up target is written (the temporary folder)");
  extract->add_option("--memory", flags->memory, "limit that the pass must keep, as in eaglet extract");
  extract->add_option("--tokens", flags->tokens, "of a pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  extract->add_option("--document-tokens", flags->document_tokens, "of a document")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  extract->add_option("--passes", flags->passes, "of --model; the best counts (2)")
      ->check(CLI::PositiveNumber);
  extract->add_option("--compute-type", flags->compute_type, "products in auto, f32 or bf16")
      ->capture_default_str();
  extract->add_flag("--deterministic,--no-deterministic{false}", flags->deterministic,
                    "as in eaglet extract");
  extract->add_option("--threads", flags->threads, "0: all cores")->check(CLI::NonNegativeNumber);
  return extract;
}

Status bench_extract(const BenchExtractFlags& flags, const Context& context) {
  set_num_threads(flags.threads);
  if (flags.model.empty() == (flags.streamed_layers == 0))
    return Status(StatusCode::kUsage, "one of --model and --streamed-layers is needed", {},
                  "eaglet bench extract --help");
  const bool other = flags.model.empty() ? flags.passes > 0 : !flags.directory.empty();
  if (other)
    return Status(
        StatusCode::kUsage,
        flags.model.empty() ? "--passes belongs to --model" : "--directory belongs to --streamed-layers", {},
        "leave it out");
  return flags.model.empty() ? bench_streamed(flags, context) : bench_model(flags, context);
}

}  // namespace eaglet::apps
