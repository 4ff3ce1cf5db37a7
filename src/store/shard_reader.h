#pragma once

#include <string>

#include "base/files.h"
#include "base/status.h"
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
  /// The states of document i [tokens, slots, hidden] where they are mapped, after their checksum was found
  /// right.
  Result<const std::uint16_t*> states(std::size_t i) const;
  /// The same without looking at the checksum again.
  const std::uint16_t* unchecked_states(std::size_t i) const;
  /// Gives back the pages of all of document i's states.
  void release_states(std::size_t i) const;
  /// Every byte of document i, and that its states are finite.
  Status verify(std::size_t i) const;

 private:
  ShardReader(MappedFile file, ShardDirectory directory)
      : file_(std::move(file)), directory_(std::move(directory)) {}
  Status at(std::size_t i, const Status& status) const;
  Status check_same_head(std::size_t i) const;
  const std::byte* record(std::size_t i) const { return file_.data() + entries()[i].offset; }

  MappedFile file_;
  ShardDirectory directory_;
};

}  // namespace eaglet
