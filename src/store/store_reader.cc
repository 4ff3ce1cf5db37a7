#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/files.h"
#include "base/interrupt.h"
#include "store/shard_reader.h"
#include "store/shard_writer.h"
#include "store/store.h"
#include "store/store_files.h"

namespace eaglet {
namespace {

class MappedStore : public StoreReader {
 public:
  Status add(ShardReader shard) {
    if (!shards_.empty())
      EAGLET_RETURN_IF_ERROR(check_same_header(shard.header(), header()).at(shard.path()));
    for (std::size_t i = 0; i < shard.entries().size(); ++i) {
      const DirectoryEntry& entry = shard.entries()[i];
      if (!ids_.insert(entry.name).second)
        return Status(StatusCode::kDataLoss, "the document '" + entry.name + "' is in the store twice",
                      shard.path(), "remove one of the shards that hold it");
      documents_.push_back(
          {entry.name, entry.head.tokens, entry.head.supervised_tokens, entry.head.first_supervised});
      places_.push_back({shards_.size(), i});
    }
    bytes_ += shard.bytes();
    shards_.push_back(std::move(shard));
    return {};
  }

  const StoreHeader& header() const override { return shards_.front().header(); }
  const std::vector<StoredDocument>& documents() const override { return documents_; }
  std::uint64_t bytes() const override { return bytes_; }

  Result<DocumentStates> read_tokens(std::size_t i) const override {
    EAGLET_RETURN_IF_ERROR(check_index(i));
    DocumentStates document;
    EAGLET_RETURN_IF_ERROR(shard(i).read_tokens(places_[i].entry, &document));
    return document;
  }

  Result<DocumentStates> read(std::size_t i) const override {
    EAGLET_ASSIGN_OR_RETURN(DocumentStates document, read_tokens(i));
    EAGLET_ASSIGN_OR_RETURN(const std::uint16_t* states, shard(i).states(places_[i].entry));
    document.states.assign(states, states + documents_[i].tokens * header().slots() * header().hidden);
    return document;
  }

  Status read_states_f32(std::size_t i, const StateRange& range, float* aux, float* last) const override {
    EAGLET_RETURN_IF_ERROR(check_index(i));
    const std::int64_t tokens = documents_[i].tokens;
    if (range.count < 0 || range.aux_first < 0 || range.last_first < 0 ||
        range.aux_first > tokens - range.count || range.last_first > tokens - range.count)
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("states from {} and {} on, {} tokens, leave a document of {} tokens",
                                range.aux_first, range.last_first, range.count, tokens));
    if (!range.checked) EAGLET_RETURN_IF_ERROR(shard(i).states(places_[i].entry).status());
    const std::uint16_t* states = shard(i).unchecked_states(places_[i].entry);
    const std::int64_t hidden = header().hidden, aux_width = hidden * (header().slots() - 1),
                       row = aux_width + hidden;
    const auto width = static_cast<std::size_t>(aux_width);
    for (std::int64_t t = 0; t < range.count; ++t) {
      if (aux != nullptr)
        convert_to_f32(Dtype::kBF16, states + (range.aux_first + t) * row, width, aux + t * aux_width);
      if (last != nullptr)
        convert_to_f32(Dtype::kBF16, states + (range.last_first + t) * row + aux_width,
                       static_cast<std::size_t>(hidden), last + t * hidden);
    }
    if (range.release) shard(i).release_states(places_[i].entry);
    return {};
  }

  Status verify_document(std::size_t i) const override {
    EAGLET_RETURN_IF_ERROR(check_index(i));
    return shard(i).verify(places_[i].entry);
  }

  Status verify() const override {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (interrupted())
        return Status(StatusCode::kInterrupted, "stopped by a signal before every document was checked");
      EAGLET_RETURN_IF_ERROR(verify_document(i));
    }
    return {};
  }

 private:
  struct Place {
    std::size_t shard, entry;
  };
  const ShardReader& shard(std::size_t i) const { return shards_[places_[i].shard]; }
  Status check_index(std::size_t i) const {
    if (i < places_.size()) return {};
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("there is no document {}: the store has {}", i, places_.size()));
  }

  std::vector<ShardReader> shards_;
  std::vector<StoredDocument> documents_;
  std::vector<Place> places_;
  std::unordered_set<std::string> ids_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<StoreReader>> StoreReader::open(const std::string& directory) {
  EAGLET_ASSIGN_OR_RETURN(const StoreFiles files, list_store(directory));
  if (files.finished.empty())
    return Status(StatusCode::kNotFound,
                  files.unfinished.empty() ? "there is no shard of a state store in this directory"
                                           : "the store has no finished shard yet",
                  directory,
                  files.unfinished.empty()
                      ? "give the directory that extract wrote"
                      : "run the extract command again: it goes on where it was stopped");
  auto store = std::make_unique<MappedStore>();
  for (const std::uint64_t number : files.finished) {
    EAGLET_ASSIGN_OR_RETURN(ShardReader shard, ShardReader::open(shard_path(directory, number)));
    EAGLET_RETURN_IF_ERROR(store->add(std::move(shard)));
  }
  return std::unique_ptr<StoreReader>(std::move(store));
}

Result<std::unique_ptr<StoreReader>> StoreReader::open_shard(const std::string& path) {
  auto store = std::make_unique<MappedStore>();
  EAGLET_ASSIGN_OR_RETURN(ShardReader shard, ShardReader::open(path));
  EAGLET_RETURN_IF_ERROR(store->add(std::move(shard)));
  return std::unique_ptr<StoreReader>(std::move(store));
}

}  // namespace eaglet
