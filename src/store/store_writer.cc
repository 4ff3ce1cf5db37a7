#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "store/shard_reader.h"
#include "store/shard_writer.h"
#include "store/store.h"
#include "store/store_files.h"

namespace eaglet {
namespace {

/// Alone in the directory, or beside others that all said `parallel`: an exclusive or a shared lock on one
/// file.
struct WriterLock {
  std::optional<DirectoryLock> alone;
  int shared = -1;
  WriterLock() = default;
  WriterLock(WriterLock&& other) noexcept
      : alone(std::move(other.alone)), shared(std::exchange(other.shared, -1)) {}
  WriterLock& operator=(WriterLock&&) = delete;
  ~WriterLock() {
    if (shared >= 0) ::close(shared);
  }
  static Result<WriterLock> take(const std::string& directory, bool parallel) {
    WriterLock lock;
    if (!parallel) {
      EAGLET_ASSIGN_OR_RETURN(DirectoryLock alone, DirectoryLock::take(directory));
      lock.alone.emplace(std::move(alone));
      return lock;
    }
    EAGLET_RETURN_IF_ERROR(make_directories(directory));
    const std::string path = directory + "/.lock";
    lock.shared = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock.shared < 0) return errno_status("open the lock", path, errno);
    if (::flock(lock.shared, LOCK_SH | LOCK_NB) != 0)
      return Status(StatusCode::kBusy, "a writer that does not share is working in this directory", directory,
                    "wait for it, or start it with --writer too");
    return lock;
  }
};

/// Held while a shard is begun, taken up or given its final name, so that of several writers only one does so
/// at a time: between a new shard's creation and its own lock nobody may mistake it for a dead writer's, and
/// a name that is just changing from unfinished to finished must not look free, or the next shard of that
/// name would replace it.
class ClaimLock {
 public:
  static Result<ClaimLock> take(const std::string& directory) {
    const std::string path = directory + "/.claim";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return errno_status("open the lock", path, errno);
    while (::flock(fd, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const int failed = errno;
      ::close(fd);
      return errno_status("take the lock", path, failed);
    }
    return ClaimLock(fd);
  }
  ClaimLock(ClaimLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ClaimLock& operator=(ClaimLock&&) = delete;
  ~ClaimLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  explicit ClaimLock(int fd) : fd_(fd) {}
  int fd_;
};

class DirectoryWriter : public StoreWriter {
 public:
  DirectoryWriter(WriterLock lock, std::string directory, StoreHeader header,
                  const StoreWriterOptions& options)
      : lock_(std::move(lock)),
        directory_(std::move(directory)),
        header_(std::move(header)),
        options_(options) {}

  Status take_up() {
    EAGLET_ASSIGN_OR_RETURN(const ClaimLock claim, ClaimLock::take(directory_));
    EAGLET_ASSIGN_OR_RETURN(const StoreFiles files, list_store(directory_));
    for (const std::uint64_t number : files.finished) EAGLET_RETURN_IF_ERROR(take_up_finished(number));
    if (!files.finished.empty()) next_number_ = files.finished.back() + 1;
    if (files.unfinished.empty()) return {};
    if (options_.parallel) return take_up_abandoned(files.unfinished);
    const std::uint64_t number = files.unfinished.front();
    if (files.unfinished.size() > 1 || number < next_number_)
      return Status(StatusCode::kDataLoss, "there are unfinished shards that no single writer leaves behind",
                    shard_path(directory_, number) + ".tmp",
                    "run the command as it was run before, with --writer; or move the .shard.tmp files away");
    next_number_ = number;
    return take_up_unfinished(number);
  }

  const std::vector<std::string>& finished_ids() const override { return finished_ids_; }
  std::int64_t tokens_of(const std::string& id) const override {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? 0 : found->second;
  }
  const std::vector<std::string>& recovery_notes() const override { return notes_; }

  Status append(const DocumentStates& document) override {
    if (finished_) return Status(StatusCode::kInternal, "append() after finish()", directory_);
    EAGLET_RETURN_IF_ERROR(check_document(header_, document));
    if (tokens_.contains(document.id))
      return Status(StatusCode::kInvalidArgument, "the store already holds a document of this id",
                    "document '" + document.id + "'");
    if (shard_ && !shard_->names().empty() &&
        shard_->bytes() + document.states.size() * 2 > options_.shard_bytes)
      EAGLET_RETURN_IF_ERROR(finish_shard());
    if (!shard_) EAGLET_RETURN_IF_ERROR(begin_shard());
    EAGLET_RETURN_IF_ERROR(shard_->append(header_, document, encoding_of(document)));
    tokens_.emplace(document.id, document.input_ids.size());
    return {};
  }

  Status flush() override { return shard_ ? shard_->sync() : Status(); }

  Status finish() override {
    if (shard_) EAGLET_RETURN_IF_ERROR(finish_shard());
    finished_ = true;
    return {};
  }

 private:
  std::uint8_t encoding_of(const DocumentStates& document) const {
    if (document.reference) return static_cast<std::uint8_t>(StateEncoding::kElsewhere);
    return static_cast<std::uint8_t>(static_cast<std::uint8_t>(options_.encoding) |
                                     (options_.drop_unsupervised ? kDroppedRows : 0));
  }

  Status begin_shard() {
    EAGLET_ASSIGN_OR_RETURN(const ClaimLock claim, ClaimLock::take(directory_));
    while (path_exists(shard_path(directory_, next_number_)) ||
           (options_.parallel && path_exists(shard_path(directory_, next_number_) + ".tmp")))
      ++next_number_;
    EAGLET_ASSIGN_OR_RETURN(ShardWriter shard,
                            ShardWriter::create(shard_path(directory_, next_number_), header_));
    shard_.emplace(std::move(shard));
    return {};
  }

  /// Shards whose writers died get their final name at once: whoever opens the store next must see their
  /// documents, and would pass over a shard that this writer went on with.
  Status take_up_abandoned(const std::vector<std::uint64_t>& numbers) {
    for (const std::uint64_t number : numbers) {
      const Status taken = take_up_unfinished(number);
      if (taken.code() == StatusCode::kBusy) continue;  // its writer is alive
      EAGLET_RETURN_IF_ERROR(taken);
      if (!shard_) continue;  // nothing was whole
      next_number_ = number;
      if (!shard_->names().empty()) {
        EAGLET_RETURN_IF_ERROR(finish_claimed_shard());
        continue;
      }
      shard_.reset();
      EAGLET_RETURN_IF_ERROR(remove_all(shard_path(directory_, number) + ".tmp"));
    }
    return {};
  }

  Status finish_shard() {
    EAGLET_ASSIGN_OR_RETURN(const ClaimLock claim, ClaimLock::take(directory_));
    return finish_claimed_shard();
  }

  Status finish_claimed_shard() {
    EAGLET_RETURN_IF_ERROR(shard_->finish());
    shard_.reset();
    ++next_number_;
    return {};
  }

  Status take_up_finished(std::uint64_t number) {
    EAGLET_ASSIGN_OR_RETURN(const ShardReader shard, ShardReader::open(shard_path(directory_, number)));
    EAGLET_RETURN_IF_ERROR(check_same_header(shard.header(), header_).at(shard.path()));
    for (const DirectoryEntry& entry : shard.entries()) take_up_id(entry.name, entry.head.tokens);
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
    for (std::size_t i = 0; i < shard->names().size(); ++i)
      take_up_id(shard->names()[i], shard->heads()[i].tokens);
    if (cut_bytes > 0)
      notes_.push_back(fmt::format("{}.tmp: kept {} whole documents, cut {} after them", path,
                                   shard->names().size(), human_bytes(static_cast<double>(cut_bytes))));
    shard_.emplace(std::move(*shard));
    return {};
  }

  void take_up_id(const std::string& id, std::int64_t tokens) {
    if (tokens_.emplace(id, tokens).second) finished_ids_.push_back(id);
  }

  WriterLock lock_;
  std::string directory_;
  StoreHeader header_;
  StoreWriterOptions options_;
  std::optional<ShardWriter> shard_;
  std::uint64_t next_number_ = 0;                         // of shard_, or of the one to come
  std::unordered_map<std::string, std::int64_t> tokens_;  // of every document in the store, by id
  std::vector<std::string> finished_ids_, notes_;
  bool finished_ = false;
};

Status check_header(const StoreHeader& header, const StoreWriterOptions& options) {
  const bool fp8 = options.encoding == StateEncoding::kFp8;
  if (header.dtype != (fp8 ? Dtype::kF8E4M3 : Dtype::kBF16))
    return Status(StatusCode::kConfig,
                  fmt::format("a store of {} states cannot hold the form {}", dtype_name(header.dtype),
                              state_encoding_name(options.encoding)),
                  "", "fp8 goes into stores of F8_E4M3, the other forms into stores of BF16");
  if (header.hidden < 1 || header.aux_layers.empty())
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a store needs captured layers and a width, not {} and {}",
                              header.aux_layers.size(), header.hidden));
  return {};
}

}  // namespace

Result<std::unique_ptr<StoreWriter>> StoreWriter::open(const std::string& directory,
                                                       const StoreHeader& header,
                                                       const StoreWriterOptions& options) {
  EAGLET_RETURN_IF_ERROR(check_header(header, options));
  EAGLET_ASSIGN_OR_RETURN(WriterLock lock, WriterLock::take(directory, options.parallel));
  auto writer = std::make_unique<DirectoryWriter>(std::move(lock), directory, header, options);
  EAGLET_RETURN_IF_ERROR(writer->take_up());
  return std::unique_ptr<StoreWriter>(std::move(writer));
}

Result<StateEncoding> state_encoding_from_name(const std::string& name) {
  for (const StateEncoding encoding : {StateEncoding::kRaw, StateEncoding::kPlanes, StateEncoding::kFp8})
    if (name == state_encoding_name(encoding)) return encoding;
  return Status(StatusCode::kUsage, "there is no form of states '" + name + "'", "--store-dtype",
                "bf16, bf16-lossless or fp8");
}

const char* state_encoding_name(StateEncoding encoding) {
  switch (encoding) {
    case StateEncoding::kRaw:
      return "bf16";
    case StateEncoding::kPlanes:
      return "bf16-lossless";
    case StateEncoding::kFp8:
      return "fp8";
    case StateEncoding::kElsewhere:
      return "in another tool's file";
  }
  return "unknown";
}

}  // namespace eaglet
