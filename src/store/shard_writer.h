#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "store/shard_format.h"
#include "store/state_codec.h"

namespace eaglet {

/// One unfinished shard: "<path>.tmp" until finish() renames it to `path`. Not thread-safe.
class ShardWriter {
 public:
  static Result<ShardWriter> create(const std::string& path, const StoreHeader& header);
  /// Takes up "<path>.tmp" after a kill: keeps the whole records at its start, cuts the rest; *cut_bytes
  /// tells how much. kDataLoss when not even its header is whole; kConfig when it was made for another
  /// header; kBusy when a living process writes it.
  static Result<ShardWriter> recover(const std::string& path, const StoreHeader& header,
                                     std::uint64_t* cut_bytes);
  ShardWriter(ShardWriter&& other) noexcept;
  ShardWriter& operator=(ShardWriter&&) = delete;
  ~ShardWriter();

  /// Appends one checked document in the form that `encoding` tells. After a failure the shard ends where it
  /// ended before.
  Status append(const StoreHeader& header, const DocumentStates& document, std::uint8_t encoding);
  Status sync();
  /// Directory, sync, rename. After a failure the shard is as before and stays under its temporary name.
  Status finish();

  std::uint64_t bytes() const { return end_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<RecordHead>& heads() const { return heads_; }  // one for each name

 private:
  ShardWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status take_base(const StoreHeader& header, const DocumentStates& document, std::uint8_t encoding);
  Status keep_whole_records(const StoreHeader& header, std::uint64_t* cut_bytes);
  Status write_at(std::uint64_t offset, const void* data, std::uint64_t bytes);
  Status cut_back(Status reason);
  /// A failure for want of space with how much was needed and how much there is.
  Status tell_space(const Status& status, std::uint64_t needed_bytes) const;

  int fd_ = -1;
  std::string path_;
  std::uint64_t end_ = 0;
  std::vector<RecordHead> heads_;
  std::vector<std::string> names_;
  PrefixBase base_;  // the beginning of the first document, as it reads back
};

/// "target 'a' (0123...), layers [2, 15, 27] and the last, pre-norm, width 576, BF16": for errors that name
/// two stores.
std::string describe(const StoreHeader& header);
/// kConfig naming both when they differ.
Status check_same_header(const StoreHeader& found, const StoreHeader& wanted);

}  // namespace eaglet
