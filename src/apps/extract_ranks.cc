#include "apps/extract_ranks.h"

#include <fmt/format.h>

#include <memory>

#include "base/files.h"
#include "base/memory_amount.h"
#include "comm/comm.h"
#include "device/threads.h"
#include "extract/extract_work.h"
#include "formats/json.h"
#include "verifier/widened_copy.h"

namespace eaglet::apps {
namespace {

// Half of what is free, or the limit given, is for all ranks of a machine.
Result<std::string> memory_of_rank(const std::string& memory, int ranks_here) {
  std::uint64_t bytes = available_memory_bytes() / 2;
  if (!memory.empty()) {
    EAGLET_ASSIGN_OR_RETURN(bytes, parse_memory(memory));
  }
  return std::to_string(bytes / static_cast<std::uint64_t>(ranks_here));
}

Result<ExtractOptions> options_of_rank(ExtractOptions options, const Comm& comm) {
  if (!options.writer.empty() || !options.servers.empty())
    return Status(StatusCode::kUsage,
                  std::string(options.writer.empty() ? "--server" : "--writer") + " excludes several ranks",
                  "eaglet extract", "leave it out, or start the program without mpirun");
  options.writer = fmt::format("{}/{}", comm.rank() + 1, comm.ranks());
  options.threads = threads_of_rank(options.threads, comm.ranks_here());
  EAGLET_ASSIGN_OR_RETURN(const std::string engine, choose_engine(options));
  if (engine == "native") {
    EAGLET_ASSIGN_OR_RETURN(options.memory, memory_of_rank(options.memory, comm.ranks_here()));
  }
  return options;
}

// What only the rank itself knows; the rest is in the store, or the same for all.
Json counts_of(const ExtractReport& r) {
  return {r.already_done, r.skipped_empty, r.cut_away, r.broken_lines, r.tokens_per_second};
}

Result<ExtractReport> of_all(const std::vector<std::string>& texts, const ExtractOptions& options) {
  ExtractReport sum;
  for (const std::string& text : texts) {
    EAGLET_ASSIGN_OR_RETURN(const Json counts, parse_json(text));
    sum.already_done += counts[0].get<std::int64_t>();
    sum.skipped_empty += counts[1].get<std::int64_t>();
    sum.cut_away += counts[2].get<std::int64_t>();
    sum.broken_lines = counts[3].get<std::int64_t>();  // every rank reads all lines
    sum.tokens_per_second += counts[4].get<double>();
  }
  const Status totals = add_totals(options, &sum);
  if (totals.ok() && sum.documents > 0) return sum;
  return Status(StatusCode::kInvalidArgument, "no rank had a document with a supervised token",
                options.conversations_path,
                "run it without mpirun: it then says what is wrong with the rows");
}

Result<ExtractReport> together(const ExtractOptions& options, Comm& comm, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const ExtractOptions own, options_of_rank(options, comm));
  progress.note(fmt::format("{} ranks share the documents; the numbers are those of rank 0", comm.ranks()));
  EAGLET_ASSIGN_OR_RETURN(const ExtractReport report, extract(own, progress));
  progress.note("waiting for the other ranks");
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> texts, gather_texts(comm, counts_of(report).dump()));
  if (comm.rank() > 0) return ExtractReport();
  EAGLET_ASSIGN_OR_RETURN(ExtractReport sum, of_all(texts, options));
  sum.seconds = report.seconds;
  return sum;
}

}  // namespace

Result<ExtractReport> extract_with_ranks(ExtractOptions options, Progress& progress, bool* leads) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<Comm> comm, start_ranks());
  *leads = comm->rank() == 0;
  if (comm->ranks() == 1) return extract(options, progress);
  NoProgress silent;
  Result<ExtractReport> report = together(options, *comm, *leads ? progress : silent);
  // Also after a signal: ranks do not meet before the end, and one that was stopped alone must not wait
  // there.
  comm->leave(report.ok() ? Status() : report.status());
  return report;
}

}  // namespace eaglet::apps
