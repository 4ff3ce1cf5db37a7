#include "apps/bench_generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "apps/bench_responder.h"
#include "base/clock.h"
#include "base/files.h"
#include "formats/json.h"
#include "generate/generate.h"

namespace eaglet::apps {
namespace {

double resident_now() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// Looks at the memory after a tenth of the requests and at the end.
class MemoryWatch : public Progress {
 public:
  MemoryWatch(Progress& shown, std::uint64_t total) : shown_(shown), total_(total) {}
  void begin(const std::string& phase, std::uint64_t total, const std::string& unit,
             std::uint64_t already_done) override {
    shown_.begin(phase, total, unit, already_done);
  }
  void update(std::uint64_t done, const std::string& detail) override {
    if (early_ == 0 && done >= total_ / 10) early_ = resident_now();
    shown_.update(done, detail);
  }
  void end(const std::string& summary) override {
    late_ = resident_now();
    shown_.end(summary);
  }
  void note(const std::string& text) override { shown_.note(text); }
  double early() const { return early_; }
  double late() const { return late_; }

 private:
  Progress& shown_;
  std::uint64_t total_;
  double early_ = 0, late_ = 0;
};

/// A folder of the bench's own, gone with the object.
struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / ("eaglet-bench-" + std::to_string(::getpid()))).string();
  ~Folder() { static_cast<void>(remove_all(path).ok()); }
};

Status write_prompts(const std::string& path, std::int64_t count) {
  EAGLET_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  for (std::int64_t i = 0; i < count; ++i)
    EAGLET_RETURN_IF_ERROR(file.write(
        json_line({{"id", fmt::format("b{}", i)},
                   {"messages", {{{"role", "user"}, {"content", fmt::format("question {}", i)}}}}}) +
        "\n"));
  return file.commit();
}

}  // namespace

CLI::App* add_bench_generate(CLI::App& app, BenchGenerateFlags* flags) {
  CLI::App* generate = app.add_subcommand(
      "generate", "requests to a server that answers at once: CPU and memory that the client takes");
  generate->add_option("--requests", flags->requests, "how many")->check(CLI::PositiveNumber);
  generate->add_option("--concurrency", flags->concurrency, "at once")->check(CLI::PositiveNumber);
  generate->add_option("--answer-tokens", flags->answer_tokens, "tokens of each answer")
      ->check(CLI::PositiveNumber);
  return generate;
}

Status bench_generate(const BenchGenerateFlags& flags, const Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<BenchResponder> server,
                          BenchResponder::start(flags.answer_tokens));
  const Folder folder;
  EAGLET_RETURN_IF_ERROR(make_directories(folder.path));
  GenerateOptions options;
  options.servers = {server->url()};
  options.prompts_path = folder.path + "/prompts.jsonl";
  options.output_path = folder.path + "/conversations.jsonl";
  options.max_tokens = flags.answer_tokens;
  options.served.concurrency = flags.concurrency;
  EAGLET_RETURN_IF_ERROR(write_prompts(options.prompts_path, flags.requests));
  MemoryWatch watch(*context.progress, static_cast<std::uint64_t>(flags.requests));
  EAGLET_ASSIGN_OR_RETURN(const GenerateReport report, generate(options, watch));
  const double count = static_cast<double>(report.answered);
  const double milliseconds = report.served.cpu_seconds / count * 1000;
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t written, file_bytes(options.output_path));
  if (context.json) {
    fmt::print("{}\n", json_line({{"schema", 1},
                                  {"requests", report.answered},
                                  {"concurrency", flags.concurrency},
                                  {"cpu_milliseconds_per_request", milliseconds},
                                  {"requests_per_second", count / report.seconds},
                                  {"resident_bytes_after_a_tenth", watch.early()},
                                  {"resident_bytes_at_the_end", watch.late()},
                                  {"bytes_written", written}}));
    return {};
  }
  fmt::print("{} requests, {} at once: {:.3f} ms of CPU each, {:.0f} requests/s\n", report.answered,
             flags.concurrency, milliseconds, count / report.seconds);
  fmt::print("memory {} after a tenth, {} at the end; {} written\n", human_bytes(watch.early()),
             human_bytes(watch.late()), human_bytes(static_cast<double>(written)));
  return {};
}

}  // namespace eaglet::apps
