#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/state_rows.h"

namespace eaglet {

/// What every state in a store has in common; written in each shard's header, checked on every open.
struct StoreHeader {
  std::string target_identity;  // TargetFacts::identity of the model that made the states
  std::string target_name;
  std::int64_t hidden = 0;         // width of one state
  std::int64_t target_layers = 0;  // n
  std::vector<std::int32_t>
      aux_layers;  // captured layers: id k = residual stream after k layers (vLLM numbering)
  bool last_state_is_pre_norm = true;  // state n, before the final norm
  Dtype dtype = Dtype::kBF16;
  std::int64_t slots() const { return static_cast<std::int64_t>(aux_layers.size()) + 1; }
  bool operator==(const StoreHeader&) const = default;
};

/// How a record's states lie in a shard (docs/formats/store.md). Written to disk: never renumber.
enum class StateEncoding : std::uint8_t {
  kRaw = 0,        // bf16 as it is
  kPlanes = 1,     // bf16, lossless: byte planes packed by zstd
  kFp8 = 2,        // e4m3 with a scale for each token and slot; the header's dtype is F8_E4M3
  kElsewhere = 3,  // bf16, fp16 or fp32 in another tool's file, which must stay
};
/// "bf16", "bf16-lossless", "fp8"; kUsage for anything else.
Result<StateEncoding> state_encoding_from_name(const std::string& name);
const char* state_encoding_name(StateEncoding encoding);

/// Where a document's states lie in another tool's file.
struct StateReference {
  std::string path;  // absolute
  std::uint64_t file_bytes = 0;
  struct Slot {
    Dtype dtype = Dtype::kBF16;
    std::uint64_t offset = 0, row_bytes = 0;  // of row 0; from a row to the next
  };
  std::vector<Slot> slots;  // as in the store: captured layers, then the last state
};

/// One document on its way into a store.
struct DocumentStates {
  std::string id;
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;
  std::vector<std::uint16_t>
      states;  // bf16 [tokens, slots, hidden]: aux layers in order, then the last state
  std::optional<StateReference> reference =
      std::nullopt;  // the states stay there; `states` are what they were
};

struct StoreWriterOptions {
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;
  StateEncoding encoding = StateEncoding::kRaw;  // of new documents; a store may hold several forms of bf16
  bool drop_unsupervised = false;                // leave out states that no drafting step can reach
  bool parallel = false;  // others may write into the same directory at the same time, each its own shards
};

/// Appends documents to shards of about `shard_bytes` in `directory` (docs/formats/store.md). A document is
/// safe once append() returned and flush()/finish() or the next shard roll made it durable; a kill at any
/// byte loses at most the documents after the last durable one, and the next open() takes up what is whole
/// and says what it cut. One writer per directory, or several that all say `parallel`; readers may read
/// finished shards at the same time.
class StoreWriter {
 public:
  /// kBusy when another writer is there, kConfig when the directory holds states of another target or other
  /// layers, kDataLoss naming a damaged finished shard.
  static Result<std::unique_ptr<StoreWriter>> open(const std::string& directory, const StoreHeader& header,
                                                   const StoreWriterOptions& options = {});
  virtual ~StoreWriter() = default;
  /// Ids that are already whole in the store (from earlier runs), in stored order.
  virtual const std::vector<std::string>& finished_ids() const = 0;
  /// Tokens of the document of this id, from this run or an earlier one; 0 when the store has none of it.
  virtual std::int64_t tokens_of(const std::string& id) const = 0;
  /// What open() had to cut or throw away after a kill; empty when nothing.
  virtual const std::vector<std::string>& recovery_notes() const = 0;
  /// kInvalidArgument when the document is malformed or its id is in the store already, kNumeric when a state
  /// is not finite, kNoSpace when the disk is full. The store stays as it was before a failed append.
  virtual Status append(const DocumentStates& document) = 0;
  /// Makes everything appended so far durable.
  virtual Status flush() = 0;
  /// Closes the last shard (directory at its end, rename). No append after it.
  virtual Status finish() = 0;
};

struct StoredDocument {
  std::string id;
  std::int64_t tokens = 0;
  std::int64_t supervised_tokens = 0;
  std::int64_t first_supervised = 0;  // index of the first supervised token; `tokens` when there is none
  std::uint64_t bytes = 0;            // of its record
  StateEncoding encoding = StateEncoding::kRaw;
  bool dropped = false;  // only rows that a drafting step can reach have states
};

/// Which states to read as fp32: `count` tokens of the captured layers from `aux_first` on, and as many of
/// the last state from `last_first` on (training pairs a token's captured layers with the next token's last
/// state).
struct StateRange {
  std::int64_t aux_first = 0, last_first = 0, count = 0;
  bool checked = false;  // the caller has read from this document before: its checksum is not looked at again
  bool release = false;  // the pages read are not needed soon
};

/// Random access by document over all finished shards of a directory, mapped. Thread-safe for reading.
class StoreReader {
 public:
  /// kNotFound when there is no finished shard, kDataLoss naming a damaged one, kConfig when shards disagree.
  static Result<std::unique_ptr<StoreReader>> open(const std::string& directory);
  /// One shard alone, for looking at it.
  static Result<std::unique_ptr<StoreReader>> open_shard(const std::string& path);
  virtual ~StoreReader() = default;
  virtual const StoreHeader& header() const = 0;
  virtual const std::vector<StoredDocument>& documents() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Copies document i out; checks its checksum (kDataLoss names shard and document).
  virtual Result<DocumentStates> read(std::size_t i) const = 0;
  /// The same into a document that has been used before: its memory is taken again, which for many documents
  /// one after another is twice as fast. After a failure its content is undefined.
  virtual Status read_into(std::size_t i, DocumentStates* document) const {
    EAGLET_ASSIGN_OR_RETURN(*document, read(i));
    return {};
  }
  /// Ids, mask and id only (states stay empty): touches no state, so it is cheap on a large store.
  virtual Result<DocumentStates> read_tokens(std::size_t i) const = 0;
  /// aux [count, aux layers * hidden] and last [count, hidden] as fp32, straight from the mapped shard.
  /// Either may be nullptr: not wanted. Checks the checksum of all the document's states, unless `checked`.
  /// kInvalidArgument when the range leaves the document.
  virtual Status read_states_f32(std::size_t i, const StateRange& range, float* aux, float* last) const = 0;
  /// What read_states_stored() gives: fp8 of a store of fp8, else bf16; kF32: it has no such states (made
  /// when they are asked for).
  virtual StateForm stored_form() const { return StateForm::kF32; }
  /// As read_states_f32(), but the numbers as they are stored, half or a quarter of the bytes: for a device,
  /// which widens them. A row without states is zeros.
  virtual Status read_states_stored(std::size_t i, const StateRange& range, const StoredRowsTo& aux,
                                    const StoredRowsTo& last) const {
    static_cast<void>(i), static_cast<void>(range), static_cast<void>(aux), static_cast<void>(last);
    return Status(StatusCode::kInternal, "this store has no states in a stored form");
  }
  /// Reads and checks every byte, and that every state is finite; the first damage comes back as an error
  /// (kDataLoss, kNumeric). kInterrupted after a signal.
  virtual Status verify() const = 0;
  /// The same for one document.
  virtual Status verify_document(std::size_t i) const = 0;
};

}  // namespace eaglet
