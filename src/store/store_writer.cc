#include <fmt/format.h>

#include <optional>
#include <unordered_set>

#include "base/clock.h"
#include "base/files.h"
#include "store/shard_reader.h"
#include "store/shard_writer.h"
#include "store/store.h"
#include "store/store_files.h"

namespace eaglet {
namespace {

class DirectoryWriter : public StoreWriter {
 public:
  DirectoryWriter(DirectoryLock lock, std::string directory, StoreHeader header, std::uint64_t shard_bytes)
      : lock_(std::move(lock)),
        directory_(std::move(directory)),
        header_(std::move(header)),
        shard_bytes_(shard_bytes) {}

  Status take_up() {
    EAGLET_ASSIGN_OR_RETURN(const StoreFiles files, list_store(directory_));
    for (const std::uint64_t number : files.finished) EAGLET_RETURN_IF_ERROR(take_up_finished(number));
    if (!files.finished.empty()) next_number_ = files.finished.back() + 1;
    if (files.unfinished.empty()) return {};
    const std::uint64_t number = files.unfinished.front();
    if (files.unfinished.size() > 1 || number < next_number_)
      return Status(StatusCode::kDataLoss, "there are unfinished shards that no single writer leaves behind",
                    shard_path(directory_, number) + ".tmp",
                    "move the .shard.tmp files away, then run the command again");
    next_number_ = number;
    return take_up_unfinished(number);
  }

  const std::vector<std::string>& finished_ids() const override { return finished_ids_; }
  const std::vector<std::string>& recovery_notes() const override { return notes_; }

  Status append(const DocumentStates& document) override {
    if (finished_) return Status(StatusCode::kInternal, "append() after finish()", directory_);
    EAGLET_RETURN_IF_ERROR(check_document(header_, document));
    if (ids_.contains(document.id))
      return Status(StatusCode::kInvalidArgument, "the store already holds a document of this id",
                    "document '" + document.id + "'");
    if (shard_ && !shard_->names().empty() && shard_->bytes() + document.states.size() * 2 > shard_bytes_)
      EAGLET_RETURN_IF_ERROR(finish_shard());
    if (!shard_) {
      EAGLET_ASSIGN_OR_RETURN(ShardWriter shard,
                              ShardWriter::create(shard_path(directory_, next_number_), header_));
      shard_.emplace(std::move(shard));
    }
    EAGLET_RETURN_IF_ERROR(shard_->append(header_, document));
    ids_.insert(document.id);
    return {};
  }

  Status flush() override { return shard_ ? shard_->sync() : Status(); }

  Status finish() override {
    if (shard_) EAGLET_RETURN_IF_ERROR(finish_shard());
    finished_ = true;
    return {};
  }

 private:
  Status finish_shard() {
    EAGLET_RETURN_IF_ERROR(shard_->finish());
    shard_.reset();
    ++next_number_;
    return {};
  }

  Status take_up_finished(std::uint64_t number) {
    EAGLET_ASSIGN_OR_RETURN(const ShardReader shard, ShardReader::open(shard_path(directory_, number)));
    EAGLET_RETURN_IF_ERROR(check_same_header(shard.header(), header_).at(shard.path()));
    for (const DirectoryEntry& entry : shard.entries()) take_up_id(entry.name);
    return {};
  }

  Status take_up_unfinished(std::uint64_t number) {
    const std::string path = shard_path(directory_, number);
    std::uint64_t cut_bytes = 0;
    auto shard = ShardWriter::recover(path, header_, &cut_bytes);
    if (!shard.ok() && shard.status().code() == StatusCode::kDataLoss) {
      notes_.push_back(fmt::format("{}.tmp was removed: {}", path, shard.status().what()));
      return remove_all(path + ".tmp");
    }
    if (!shard.ok()) return shard.status();
    for (const std::string& name : shard->names()) take_up_id(name);
    if (cut_bytes > 0)
      notes_.push_back(fmt::format("{}.tmp: kept {} whole documents, cut {} after them", path,
                                   shard->names().size(), human_bytes(static_cast<double>(cut_bytes))));
    shard_.emplace(std::move(*shard));
    return {};
  }

  void take_up_id(const std::string& id) {
    if (ids_.insert(id).second) finished_ids_.push_back(id);
  }

  DirectoryLock lock_;
  std::string directory_;
  StoreHeader header_;
  std::uint64_t shard_bytes_;
  std::optional<ShardWriter> shard_;
  std::uint64_t next_number_ = 0;  // of shard_, or of the one to come
  std::unordered_set<std::string> ids_;
  std::vector<std::string> finished_ids_, notes_;
  bool finished_ = false;
};

Status check_header(const StoreHeader& header) {
  if (header.dtype != Dtype::kBF16)
    return Status(StatusCode::kConfig,
                  "a store of " + std::string(dtype_name(header.dtype)) + " states cannot be written yet", "",
                  "use BF16");
  if (header.hidden < 1 || header.aux_layers.empty())
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a store needs captured layers and a width, not {} and {}",
                              header.aux_layers.size(), header.hidden));
  return {};
}

}  // namespace

Result<std::unique_ptr<StoreWriter>> StoreWriter::open(const std::string& directory,
                                                       const StoreHeader& header, std::uint64_t shard_bytes) {
  EAGLET_RETURN_IF_ERROR(check_header(header));
  EAGLET_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::take(directory));
  auto writer = std::make_unique<DirectoryWriter>(std::move(lock), directory, header, shard_bytes);
  EAGLET_RETURN_IF_ERROR(writer->take_up());
  return std::unique_ptr<StoreWriter>(std::move(writer));
}

}  // namespace eaglet
