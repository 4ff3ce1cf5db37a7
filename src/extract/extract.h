#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/progress.h"
#include "base/status.h"
#include "formats/conversations.h"
#include "store/store.h"

namespace eaglet {

/// vLLM servers with the hidden-states connector that make the states in place of the embedded target.
struct StatesServerOptions {
  std::string states_dir;  // where they leave their files: their shared_storage_path, seen from here
  std::string model, kind = "auto", api_key_env = "EAGLET_API_KEY", ca_file;
  std::vector<std::int32_t>
      captured_layer_ids;                  // what they capture, in order; empty: the layers kept and the last
  std::string layer_convention = "input";  // how both lists count
  std::int64_t concurrency = 16, tries = 6;
  double timeout_seconds = 600, retry_wait_seconds = 1, wait_ready_seconds = 30;
  double wait_seconds = 60;  // for a named file to be there, whole and unlocked
};

struct ExtractOptions {
  std::string model_path;
  std::string conversations_path;
  std::string store_path;                      // directory
  std::vector<std::int32_t> target_layer_ids;  // empty: [2, L/2, L-3]; the last state is always added
  std::int64_t max_seq_len = 0;                // cut documents to this many tokens; 0 = no cut
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;
  std::string store_dtype = "bf16";  // bf16 | bf16-lossless | fp8
  bool drop_unsupervised = false;    // no states that no drafting step can reach
  std::string writer;  // "2/4": the second of four processes that share the documents by their ids
  int threads = 0;
  std::string weights = "auto";  // auto | stored | f16 | f32: TargetWeightsAs
  std::string engine = "auto";   // auto | native | llama: auto is native for a transformers folder
  std::string memory;            // native: weights and activations, as 4G; empty: half of what is free
  std::string spill_directory;   // native: the rows of a pass lie in a file there; empty: in memory
  std::string compute_type =
      "auto";                        // native: products in f32 or bf16; auto: bf16 where the processor has it
  bool deterministic = true;         // native: the same bits in passes of any size
  bool force = false;                // go on although the forecast does not fit the disk
  std::vector<std::string> servers;  // empty: the embedded target makes the states
  StatesServerOptions server;
};

struct ExtractReport {
  std::int64_t documents = 0, already_done = 0, broken_lines = 0;
  std::int64_t skipped_empty = 0, cut_away = 0;    // nothing supervised; nothing left under the length limit
  std::int64_t tokens = 0, supervised_tokens = 0;  // whole store
  std::uint64_t state_bytes = 0;                   // whole store on disk
  double seconds = 0, tokens_per_second = 0;       // this run
  // From servers only: requests, files of an earlier run taken without one, documents left out by reason;
  // document and name of each file that stays in the servers' folder because its lock never got free.
  std::int64_t asked = 0, taken_over = 0;
  std::map<std::string, std::int64_t> left_out;
  std::vector<std::pair<std::string, std::string>> left_behind;
};

/// "native" or "llama": as asked, or by what the target is. kUsage for another name.
Result<std::string> choose_engine(const ExtractOptions& options);

/// Form, shard size and sharing of a store as the options say. kUsage for an unknown form or a wrong "k/n".
Result<StoreWriterOptions> store_options(const std::string& store_dtype, bool drop_unsupervised,
                                         std::uint64_t shard_bytes, const std::string& writer);

/// Which documents are this process's: those whose id hashes to it.
struct WriterShare {
  std::uint64_t index = 0, count = 1;
  bool has(const std::string& id) const { return count == 1 || xxh64(id) % count == index; }
};
Result<WriterShare> writer_share(const std::string& writer);

Result<ExtractReport> extract(const ExtractOptions& options, Progress& progress);

/// The documents that extract() would take states of, in its order, and the header it would write. No state
/// is made.
struct ExtractPlan {
  StoreHeader header;
  std::vector<Conversation> documents;
};
Result<ExtractPlan> plan_extraction(const ExtractOptions& options);

}  // namespace eaglet
