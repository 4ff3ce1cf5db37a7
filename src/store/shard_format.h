#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/store.h"

namespace eaglet {

// The bytes of a shard (docs/formats/store.md). Structs are written as they lie in memory: little-endian
// only.

constexpr std::uint64_t kShardAlignment = 64;
constexpr std::uint64_t kMaxShardHeaderBytes = std::uint64_t{1} << 20;
constexpr std::uint32_t kShardVersion = 1;

inline std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) {
  return (bytes + to - 1) / to * to;
}

/// How a record begins.
inline constexpr char kRecordMagic[] = "EGLTDOC\n";

struct RecordHead {
  char magic[8];
  std::uint64_t record_bytes;
  std::uint64_t head_checksum;
  std::uint64_t meta_checksum;
  std::uint64_t states_checksum;
  std::uint64_t states_bytes;
  std::uint32_t tokens;
  std::uint32_t supervised_tokens;
  std::uint32_t first_supervised;
  std::uint16_t name_bytes;
  std::uint8_t encoding;
  std::uint8_t zero;

  std::uint64_t meta_bytes() const {
    return round_up(std::uint64_t{tokens} * 5 + name_bytes, kShardAlignment);
  }
  std::uint64_t meta_offset() const { return sizeof(RecordHead); }
  std::uint64_t states_offset() const { return sizeof(RecordHead) + meta_bytes(); }
};
static_assert(sizeof(RecordHead) == 64);

struct ShardFooter {
  std::uint64_t directory_offset;
  std::uint64_t documents;
  std::uint64_t checksum;
  char magic[8];
};
static_assert(sizeof(ShardFooter) == 32);

/// The header's bytes, padded.
std::string encode_shard_header(const StoreHeader& header);
/// Checks and reads the header at the start of `data`. kDataLoss when damaged, kConfig when from a version or
/// of a kind that we do not read. *header_bytes is where the first record begins.
Result<StoreHeader> decode_shard_header(const std::byte* data, std::uint64_t bytes,
                                        std::uint64_t* header_bytes);

/// Refuses documents that no record can hold: lengths that differ, ids < 0, a mask that is not 0/1, a bad
/// name (kInvalidArgument), states that are not finite (kNumeric, naming token and slot).
Status check_document(const StoreHeader& header, const DocumentStates& document);
/// The head and the meta part (padded) of a checked document's record; its states (`payload`, in the form
/// that `encoding` tells) and their padding follow.
RecordHead encode_record(const DocumentStates& document, std::uint8_t encoding, const void* payload,
                         std::uint64_t payload_bytes, std::string* meta);

/// The same for a payload that is not at hand, only its size and checksum (xxh64).
RecordHead encode_record(const DocumentStates& document, std::uint8_t encoding, std::uint64_t payload_bytes,
                         std::uint64_t payload_checksum, std::string* meta);

/// The head at `data` when it is whole, fits the header and its record lies within `bytes`.
Result<RecordHead> decode_record_head(const StoreHeader& header, const std::byte* data, std::uint64_t bytes);
/// Ids, mask and name of a record (checksum, ranges and counts). `record` points at its head.
Status decode_record_meta(const RecordHead& head, const std::byte* record, DocumentStates* document);
/// Checksum of the states and zero padding behind them.
Status check_record_states(const RecordHead& head, const std::byte* record);
/// kNumeric naming token and slot of the first state that is not finite. Raw bf16.
Status check_finite(const StoreHeader& header, const std::uint16_t* states, std::int64_t tokens);

/// Directory and footer for records that begin at `header_bytes`.
std::string encode_directory(const std::vector<RecordHead>& heads, const std::vector<std::string>& names,
                             std::uint64_t directory_offset);

/// One document as the directory tells it.
struct DirectoryEntry {
  RecordHead head;
  std::uint64_t offset = 0;
  std::string name;
};
/// Header, footer and directory of a whole finished shard in memory, checked; no record is read.
struct ShardDirectory {
  StoreHeader header;
  std::vector<DirectoryEntry> entries;
};
Result<ShardDirectory> decode_shard(const std::byte* data, std::uint64_t bytes);

}  // namespace eaglet
