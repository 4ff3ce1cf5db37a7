#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "store/fp8_rows.h"
#include "store/shard_format.h"

namespace eaglet {

/// One finished shard, mapped. Reading changes nothing, so threads may share it. Errors name file and
/// document.
class ShardReader {
 public:
  static Result<ShardReader> open(const std::string& path);
  const StoreHeader& header() const { return directory_.header; }
  const std::vector<DirectoryEntry>& entries() const { return directory_.entries; }
  const std::string& path() const { return file_.path(); }
  std::uint64_t bytes() const { return file_.bytes(); }

  /// Ids, mask and name of document i.
  Status read_tokens(std::size_t i, DocumentStates* document) const;
  /// kDataLoss unless the record of document i is as it was written.
  Status check_states(std::size_t i) const;
  /// The states of document i [tokens, slots, hidden] where they are mapped; nullptr unless they are raw bf16
  /// of every token. Unchecked: check_states() first.
  const std::uint16_t* raw_states(std::size_t i) const;
  /// The states of the first `rows` tokens of document i [rows, slots, hidden] from any form, unpacked; zeros
  /// where rows were dropped. `mask` is the document's.
  Status decode(std::size_t i, const std::vector<std::uint8_t>& mask, std::int64_t rows,
                std::uint16_t* out) const;
  /// The rows of document i of an fp8 shard where they are mapped. Unchecked, as raw_states().
  Result<Fp8Rows> fp8_rows(std::size_t i, const std::vector<std::uint8_t>& mask) const;
  /// A hint: the states of rows [first, first + count) of a raw document are read next.
  void will_read_rows(std::size_t i, std::int64_t first, std::int64_t count) const;
  /// Gives back the pages of all of document i's states.
  void release_states(std::size_t i) const;
  /// Every byte of document i, and that its states are finite.
  Status verify(std::size_t i) const;

 private:
  ShardReader(MappedFile file, ShardDirectory directory)
      : file_(std::move(file)), directory_(std::move(directory)) {}
  Status at(std::size_t i, const Status& status) const;
  Status check_same_head(std::size_t i) const;
  void will_read_states(std::size_t i) const;
  const std::byte* record(std::size_t i) const { return file_.data() + entries()[i].offset; }

  MappedFile file_;
  ShardDirectory directory_;
};

}  // namespace eaglet
