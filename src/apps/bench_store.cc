#include "apps/bench_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/rng.h"
#include "formats/json.h"
#include "store/hole_shard.h"
#include "store/store.h"
#include "store/store_files.h"

namespace eaglet::apps {
namespace {

/// Of this thread alone: other programs on the machine, and waiting for the disk, do not count.
double thread_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double own_resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0, shared = 0;
  file >> pages >> resident >> shared;
  return (resident - shared) * static_cast<double>(::sysconf(_SC_PAGESIZE));  // without mapped files
}

struct StoreFolder {
  std::string path;
  ~StoreFolder() { static_cast<void>(remove_all(path).ok()); }
};

struct Material {
  StoreHeader header;
  std::vector<DocumentStates> documents;
  double bytes = 0;  // of states, in bf16
};

/// Numbers like a residual stream's: each channel has a size of its own.
Material made_up(double wanted_bytes) {
  Material material;
  material.header = {"0123456789abcdef", "made up", 2048, 32, {2, 16, 29}, true, Dtype::kBF16};
  constexpr std::int64_t kTokens = 256;
  const auto width = static_cast<std::size_t>(material.header.slots() * material.header.hidden);
  Rng rng(1);
  std::vector<float> sizes(width);
  for (float& size : sizes) size = static_cast<float>(std::exp(0.5 * rng.normal()));
  std::vector<std::uint16_t> states(width * kTokens);
  for (std::size_t i = 0; i < states.size(); ++i)
    states[i] = f32_to_bf16(static_cast<float>(rng.normal()) * sizes[i % width]);
  while (material.bytes < wanted_bytes) {
    DocumentStates document{fmt::format("d{:06}", material.documents.size()), {}, {}, states};
    for (std::int64_t t = 0; t < kTokens; ++t) {
      document.input_ids.push_back(static_cast<std::int32_t>(rng.below(32000)));
      document.loss_mask.push_back(t >= kTokens / 2);
    }
    // Another document has other numbers: the same ones turned by some rows.
    std::rotate(document.states.begin(),
                document.states.begin() + static_cast<std::ptrdiff_t>(width * rng.below(kTokens)),
                document.states.end());
    material.bytes += static_cast<double>(states.size() * 2);
    material.documents.push_back(std::move(document));
  }
  return material;
}

Result<Material> material_of(const BenchStoreFlags& flags) {
  const double wanted = static_cast<double>(flags.megabytes) * 1e6;
  if (flags.store_path.empty()) return made_up(wanted);
  EAGLET_ASSIGN_OR_RETURN(const auto store, StoreReader::open(flags.store_path));
  Material material;
  material.header = store->header();
  for (std::size_t i = 0; i < store->documents().size() && material.bytes < wanted; ++i) {
    EAGLET_ASSIGN_OR_RETURN(DocumentStates document, store->read(i));
    material.bytes += static_cast<double>(document.states.size() * 2);
    material.documents.push_back(std::move(document));
  }
  return material;
}

struct FormResult {
  StateEncoding form = StateEncoding::kRaw;
  double share = 0;  // bytes of the files by bytes of the states in bf16
  // Bytes of states as bf16 a second of one core's time: written with all checks, read as bf16 and as fp32
  // with checksums, as fp32 without looking at the checksum again.
  double write = 0, read = 0, read_f32 = 0, read_again = 0;
  double document_milliseconds = 0;  // a whole document of any place, read and checked
  double document_tokens = 0;
};

Status best_of(double* best_seconds, const std::function<Status()>& work) {
  const double start = thread_seconds();
  EAGLET_RETURN_IF_ERROR(work());
  *best_seconds = std::min(*best_seconds, thread_seconds() - start);
  if (interrupted()) return Status(StatusCode::kInterrupted, "the benchmark was stopped");
  return {};
}

Status write_material(const Material& material, const std::string& path, StateEncoding form) {
  EAGLET_RETURN_IF_ERROR(remove_all(path));
  StoreHeader header = material.header;
  header.dtype = form == StateEncoding::kFp8 ? Dtype::kF8E4M3 : Dtype::kBF16;
  StoreWriterOptions options;
  options.encoding = form;
  EAGLET_ASSIGN_OR_RETURN(const auto writer, StoreWriter::open(path, header, options));
  for (const DocumentStates& document : material.documents) EAGLET_RETURN_IF_ERROR(writer->append(document));
  return writer->finish();
}

Status read_all_f32(const StoreReader& store, bool checked, std::vector<float>* rows) {
  const auto width = static_cast<std::size_t>(store.header().slots() * store.header().hidden);
  for (std::size_t i = 0; i < store.documents().size(); ++i) {
    const auto tokens = static_cast<std::size_t>(store.documents()[i].tokens);
    if (rows->size() < tokens * width) rows->resize(tokens * width);
    StateRange range;
    range.count = static_cast<std::int64_t>(tokens);
    range.checked = checked;
    EAGLET_RETURN_IF_ERROR(store.read_states_f32(
        i, range, rows->data(),
        rows->data() + tokens * (width - static_cast<std::size_t>(store.header().hidden))));
  }
  return {};
}

Status read_documents(const StoreReader& store, DocumentStates* document) {
  for (std::size_t i = 0; i < store.documents().size(); ++i)
    EAGLET_RETURN_IF_ERROR(store.read_into(i, document));
  return {};
}

Result<FormResult> measure_form(const Material& material, const std::string& path, StateEncoding form,
                                std::int64_t repeats) {
  FormResult result;
  result.form = form;
  double write = 1e30, read = 1e30, read_f32 = 1e30, again = 1e30;
  for (std::int64_t r = 0; r < repeats; ++r)
    EAGLET_RETURN_IF_ERROR(best_of(&write, [&] { return write_material(material, path, form); }));
  EAGLET_ASSIGN_OR_RETURN(const auto store, StoreReader::open(path));
  DocumentStates document;
  std::vector<float> rows;
  for (std::int64_t r = 0; r <= repeats; ++r) {  // once more: the first look maps the pages
    EAGLET_RETURN_IF_ERROR(best_of(&read, [&] { return read_documents(*store, &document); }));
    EAGLET_RETURN_IF_ERROR(best_of(&read_f32, [&] { return read_all_f32(*store, false, &rows); }));
    EAGLET_RETURN_IF_ERROR(best_of(&again, [&] { return read_all_f32(*store, true, &rows); }));
  }
  result.share = static_cast<double>(store->bytes()) / material.bytes;
  result.write = material.bytes / write;
  result.read = material.bytes / read;
  result.read_f32 = material.bytes / read_f32;
  result.read_again = material.bytes / again;
  const double count = static_cast<double>(material.documents.size());
  result.document_milliseconds = 1e3 * read / count;
  for (const StoredDocument& d : store->documents())
    result.document_tokens += static_cast<double>(d.tokens) / count;
  return result;
}

struct LargeResult {
  std::int64_t documents = 0, shards = 0, tokens = 0;
  double bytes = 0, disk_bytes = 0;
  double open_seconds = 0, resume_seconds = 0;  // for reading; for going on with writing
  double index_bytes = 0, memory_bytes = 0;     // directories and footers on the disk; in memory once open
  // Ids, mask and a token's states of any document: the mean of one core's time, and by the clock on the
  // wall.
  double core_milliseconds = 0, median_milliseconds = 0, late_milliseconds = 0, worst_milliseconds = 0;
  double remove_seconds = 0;
};

Status make_large(const BenchStoreFlags& flags, const std::string& path, LargeResult* large) {
  const StoreHeader header{"0123456789abcdef", "large", 7168, 61, {2, 30, 58}, true, Dtype::kBF16};
  constexpr std::int64_t kTokenBytes = 4 * 7168 * 2, kInShard = 8;
  large->tokens =
      std::max<std::int64_t>(flags.large_terabytes * 1000000000000 / kTokenBytes / flags.documents, 32);
  EAGLET_RETURN_IF_ERROR(make_directories(path));
  HoleShards writer(header);
  for (std::int64_t done = 0; done < flags.documents; ++large->shards) {
    std::vector<std::string> names;
    for (; done < flags.documents && static_cast<std::int64_t>(names.size()) < kInShard; ++done)
      names.push_back(fmt::format("conversation-{:08}", done));
    const std::string shard = shard_path(path, static_cast<std::uint64_t>(large->shards));
    EAGLET_RETURN_IF_ERROR(writer.write(shard, names, large->tokens));
    // 64 bytes of head and the name of each document, the padding and the footer.
    large->index_bytes += static_cast<double>((names.size() * (64 + names.front().size()) + 7) / 8 * 8 + 32);
    if (interrupted()) return Status(StatusCode::kInterrupted, "the benchmark was stopped");
  }
  large->documents = flags.documents;
  return {};
}

double disk_taken(const std::string& path) {
  double bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    struct stat info = {};
    if (::stat(entry.path().c_str(), &info) == 0) bytes += 512.0 * static_cast<double>(info.st_blocks);
  }
  return bytes;
}

/// Documents in random order: what the loader asks for at a batch's start.
Status measure_access(const StoreReader& store, LargeResult* large) {
  constexpr int kLooks = 2000;
  constexpr std::int64_t kRows = 1;
  const StoreHeader& header = store.header();
  std::vector<float> aux(static_cast<std::size_t>(kRows * header.hidden * (header.slots() - 1))),
      last(static_cast<std::size_t>(kRows * header.hidden));
  Rng rng(7);
  double core_seconds = 0;
  std::vector<double> milliseconds;
  for (int look = 0; look < kLooks; ++look) {
    const auto i = static_cast<std::size_t>(rng.below(store.documents().size()));
    const double start = monotonic_seconds(), core_start = thread_seconds();
    EAGLET_RETURN_IF_ERROR(store.read_tokens(i).status());
    StateRange range;
    range.aux_first = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(large->tokens - kRows)));
    range.last_first = range.aux_first + 1;
    range.count = kRows;
    range.checked = true;
    EAGLET_RETURN_IF_ERROR(store.read_states_f32(i, range, aux.data(), last.data()));
    core_seconds += thread_seconds() - core_start;
    milliseconds.push_back(1e3 * (monotonic_seconds() - start));
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  large->core_milliseconds = 1e3 * core_seconds / kLooks;
  large->median_milliseconds = milliseconds[kLooks / 2];
  large->late_milliseconds = milliseconds[kLooks * 99 / 100];
  large->worst_milliseconds = milliseconds.back();
  return {};
}

Result<LargeResult> measure_large(const BenchStoreFlags& flags, const std::string& path) {
  LargeResult large;
  EAGLET_RETURN_IF_ERROR(make_large(flags, path, &large));
  large.disk_bytes = disk_taken(path);
  const double before = own_resident_bytes(), start = monotonic_seconds();
  EAGLET_ASSIGN_OR_RETURN(const auto store, StoreReader::open(path));
  large.open_seconds = monotonic_seconds() - start;
  large.memory_bytes = own_resident_bytes() - before;
  large.bytes = static_cast<double>(store->bytes());
  EAGLET_RETURN_IF_ERROR(measure_access(*store, &large));
  const double resume = monotonic_seconds();
  EAGLET_ASSIGN_OR_RETURN(const auto writer, StoreWriter::open(path, store->header(), {}));
  large.resume_seconds = monotonic_seconds() - resume;
  if (static_cast<std::int64_t>(writer->finished_ids().size()) != flags.documents)
    return Status(StatusCode::kInternal, "the large store lost documents", path);
  return large;
}

/// Thousands of sparse files: made and removed in seconds in memory, in minutes on a busy disk, and read
/// alike (just written, they lie in the page cache).
std::string large_base(const BenchStoreFlags& flags, const std::string& base) {
  constexpr std::uintmax_t kRoom = 2000000000;
  std::error_code error;
  const auto memory = std::filesystem::space("/dev/shm", error);
  return flags.directory.empty() && !error && memory.available > kRoom ? "/dev/shm" : base;
}

Json form_json(const FormResult& r) {
  return {{"form", state_encoding_name(r.form)},
          {"share_of_bf16", r.share},
          {"write_bytes_per_second", r.write},
          {"read_bytes_per_second", r.read},
          {"read_f32_bytes_per_second", r.read_f32},
          {"read_f32_again_bytes_per_second", r.read_again},
          {"document_milliseconds", r.document_milliseconds},
          {"document_tokens", r.document_tokens}};
}

Json large_json(const LargeResult& r) {
  return {{"documents", r.documents},
          {"shards", r.shards},
          {"bytes", r.bytes},
          {"disk_bytes", r.disk_bytes},
          {"index_bytes", r.index_bytes},
          {"memory_bytes", r.memory_bytes},
          {"open_seconds", r.open_seconds},
          {"resume_seconds", r.resume_seconds},
          {"access_core_milliseconds", r.core_milliseconds},
          {"access_median_milliseconds", r.median_milliseconds},
          {"access_99th_percent_milliseconds", r.late_milliseconds},
          {"access_worst_milliseconds", r.worst_milliseconds},
          {"remove_seconds", r.remove_seconds}};
}

void print_form(const FormResult& r) {
  fmt::print(
      "{:14} {:5.3f} of bf16; GB/s a core: write {:.2f}, read {:.2f}, as fp32 {:.2f}, again {:.2f}; {:.3f} "
      "ms a "
      "document of {:.0f} tokens\n",
      state_encoding_name(r.form), r.share, r.write / 1e9, r.read / 1e9, r.read_f32 / 1e9, r.read_again / 1e9,
      r.document_milliseconds, r.document_tokens);
}

void print_large(const LargeResult& r) {
  fmt::print(
      "{} documents, {} in {} shards (sparse: {} of disk): opened in {:.2f} s, to go on writing {:.2f} s\n",
      r.documents, human_bytes(r.bytes), r.shards, human_bytes(r.disk_bytes), r.open_seconds,
      r.resume_seconds);
  fmt::print("  index {} on disk, {} in memory; removed in {:.1f} s\n", human_bytes(r.index_bytes),
             human_bytes(r.memory_bytes), r.remove_seconds);
  fmt::print(
      "  any document's ids, mask and one row: median {:.3f} ms, 99 of 100 within {:.3f} ms, worst {:.2f} "
      "ms; "
      "{:.3f} ms of one core\n",
      r.median_milliseconds, r.late_milliseconds, r.worst_milliseconds, r.core_milliseconds);
}

}  // namespace

CLI::App* add_bench_store(CLI::App& app, BenchStoreFlags* flags) {
  CLI::App* store = app.add_subcommand(
      "store", "states: speed of writing and reading in each form, and a store of terabytes (sparse files)");
  store->add_option("--store", flags->store_path, "take the states of this store (default: made-up ones)");
  store->add_option(
      "--directory", flags->directory,
      "where to write (default: the temporary folder; the large store in /dev/shm where there is room)");
  store->add_option("--megabytes", flags->megabytes, "of states, for the speeds")->check(CLI::PositiveNumber);
  store->add_option("--repeats", flags->repeats, "the best counts")->check(CLI::PositiveNumber);
  store->add_option("--documents", flags->documents, "of the large store; 0: none")
      ->check(CLI::NonNegativeNumber);
  store->add_option("--terabytes", flags->large_terabytes, "of the large store")->check(CLI::PositiveNumber);
  return store;
}

Status bench_store(const BenchStoreFlags& flags, const Context& context) {
  const std::string base =
      flags.directory.empty() ? std::filesystem::temp_directory_path().string() : flags.directory;
  const StoreFolder folder{base + fmt::format("/eaglet-bench-store-{}", ::getpid())};
  EAGLET_RETURN_IF_ERROR(make_directories(folder.path));
  EAGLET_ASSIGN_OR_RETURN(const Material material, material_of(flags));
  context.progress->begin("bench store", 4, "measurements");
  Json forms = Json::array();
  std::vector<FormResult> results;
  for (const StateEncoding form : {StateEncoding::kRaw, StateEncoding::kPlanes, StateEncoding::kFp8}) {
    EAGLET_ASSIGN_OR_RETURN(const FormResult result,
                            measure_form(material, folder.path + "/form", form, flags.repeats));
    results.push_back(result);
    forms.push_back(form_json(result));
    context.progress->update(results.size(), state_encoding_name(form));
  }
  EAGLET_RETURN_IF_ERROR(remove_all(folder.path + "/form"));
  LargeResult large;
  if (flags.documents > 0) {
    const StoreFolder place{large_base(flags, base) +
                            fmt::format("/eaglet-bench-store-large-{}", ::getpid())};
    context.progress->update(results.size(), "a store of terabytes");
    EAGLET_ASSIGN_OR_RETURN(large, measure_large(flags, place.path));
    const double start = monotonic_seconds();
    EAGLET_RETURN_IF_ERROR(remove_all(place.path));
    large.remove_seconds = monotonic_seconds() - start;
  }
  context.progress->end(fmt::format("{} of states", human_bytes(material.bytes)));
  if (context.json) {
    Json json = {{"schema", 1}, {"bytes", material.bytes}, {"forms", forms}};
    if (flags.documents > 0) json["large"] = large_json(large);
    fmt::print("{}\n", json_line(json));
    return {};
  }
  for (const FormResult& result : results) print_form(result);
  if (flags.documents > 0) print_large(large);
  return {};
}

}  // namespace eaglet::apps
