#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <unordered_set>

#include "base/files.h"
#include "base/interrupt.h"
#include "store/shard_reader.h"
#include "store/shard_writer.h"
#include "store/state_codec.h"
#include "store/store.h"
#include "store/store_files.h"

namespace eaglet {
namespace {

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

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
      documents_.push_back({entry.name, entry.head.tokens, entry.head.supervised_tokens,
                            entry.head.first_supervised, entry.head.record_bytes,
                            form_of(entry.head.encoding), (entry.head.encoding & kDroppedRows) != 0});
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
    DocumentStates document;
    EAGLET_RETURN_IF_ERROR(read_into(i, &document));
    return document;
  }

  Status read_into(std::size_t i, DocumentStates* document) const override {
    EAGLET_RETURN_IF_ERROR(check_index(i));
    const std::size_t entry = places_[i].entry;
    EAGLET_RETURN_IF_ERROR(shard(i).read_tokens(entry, document));
    EAGLET_RETURN_IF_ERROR(shard(i).check_states(entry));
    EAGLET_RETURN_IF_ERROR(take_memory(documents_[i].tokens, &document->states));
    return shard(i).decode(entry, document->loss_mask, documents_[i].tokens, document->states.data());
  }

  Status read_states_f32(std::size_t i, const StateRange& range, float* aux, float* last) const override {
    EAGLET_RETURN_IF_ERROR(check_range(i, range));
    EAGLET_ASSIGN_OR_RETURN(const std::uint16_t* states, rows_in_bf16(i, range));
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

  StateForm stored_form() const override {
    return header().dtype == Dtype::kF8E4M3 ? StateForm::kFp8 : StateForm::kBF16;
  }

  Status read_states_stored(std::size_t i, const StateRange& range, const StoredRowsTo& aux,
                            const StoredRowsTo& last) const override {
    EAGLET_RETURN_IF_ERROR(check_range(i, range));
    if (stored_form() == StateForm::kFp8) {
      EAGLET_RETURN_IF_ERROR(read_fp8(i, range, aux, last));
    } else {
      EAGLET_ASSIGN_OR_RETURN(const std::uint16_t* states, rows_in_bf16(i, range));
      const auto hidden = static_cast<std::size_t>(header().hidden),
                 aux_width = hidden * static_cast<std::size_t>(header().slots() - 1);
      auto *aux_to = static_cast<std::uint16_t*>(aux.numbers),
           *last_to = static_cast<std::uint16_t*>(last.numbers);
      for (std::int64_t t = 0; t < range.count; ++t) {
        const auto row = static_cast<std::size_t>(t);
        const auto of = [&](std::int64_t token) {
          return states + static_cast<std::size_t>(token) * (aux_width + hidden);
        };
        if (aux_to != nullptr) std::copy_n(of(range.aux_first + t), aux_width, aux_to + row * aux_width);
        if (last_to != nullptr)
          std::copy_n(of(range.last_first + t) + aux_width, hidden, last_to + row * hidden);
      }
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
  Status take_memory(std::int64_t rows, std::vector<std::uint16_t>* states) const {
    try {
      states->resize(static_cast<std::size_t>(rows * header().slots() * header().hidden));
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::kNoSpace,
                    fmt::format("there is no memory for the states of {} tokens", rows));
    }
    return {};
  }
  Status check_range(std::size_t i, const StateRange& range) const {
    EAGLET_RETURN_IF_ERROR(check_index(i));
    const std::int64_t tokens = documents_[i].tokens;
    if (range.count < 0 || range.aux_first < 0 || range.last_first < 0 ||
        range.aux_first > tokens - range.count || range.last_first > tokens - range.count)
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("states from {} and {} on, {} tokens, leave a document of {} tokens",
                                range.aux_first, range.last_first, range.count, tokens));
    return {};
  }

  /// The document's states from its first token to the range's last, mapped or unpacked.
  Result<const std::uint16_t*> rows_in_bf16(std::size_t i, const StateRange& range) const {
    if (!range.checked) EAGLET_RETURN_IF_ERROR(shard(i).check_states(places_[i].entry));
    const std::int64_t first = std::min(range.aux_first, range.last_first),
                       end = std::max(range.aux_first, range.last_first) + range.count;
    const std::uint16_t* states = shard(i).raw_states(places_[i].entry);
    if (states == nullptr) return unpacked_rows(i, end);
    // Unchecked, the checksum has just read all of it.
    if (range.checked) shard(i).will_read_rows(places_[i].entry, first, end - first);
    return states;
  }

  Status read_fp8(std::size_t i, const StateRange& range, const StoredRowsTo& aux,
                  const StoredRowsTo& last) const {
    const std::size_t entry = places_[i].entry;
    if (!range.checked) EAGLET_RETURN_IF_ERROR(shard(i).check_states(entry));
    DocumentStates document;
    EAGLET_RETURN_IF_ERROR(shard(i).read_tokens(entry, &document));
    EAGLET_ASSIGN_OR_RETURN(const Fp8Rows rows, shard(i).fp8_rows(entry, document.loss_mask));
    const std::int64_t aux_slots = header().slots() - 1;
    for (std::int64_t t = 0; t < range.count; ++t) {
      for (std::int64_t slot = 0; slot < aux_slots && aux.numbers != nullptr; ++slot)
        EAGLET_RETURN_IF_ERROR(
            copy_fp8(rows, range.aux_first + t, slot, aux, t * aux_slots + slot, slot * aux.scales_ld + t));
      if (last.numbers != nullptr)
        EAGLET_RETURN_IF_ERROR(copy_fp8(rows, range.last_first + t, aux_slots, last, t, t));
    }
    return {};
  }
  Status copy_fp8(const Fp8Rows& rows, std::int64_t token, std::int64_t slot, const StoredRowsTo& to,
                  std::int64_t row, std::int64_t scale) const {
    EAGLET_ASSIGN_OR_RETURN(const Fp8Rows::Row from, rows.row(token, slot));
    const std::int64_t hidden = header().hidden;
    std::byte* numbers = static_cast<std::byte*>(to.numbers) + row * hidden;
    if (from.numbers != nullptr)
      std::copy_n(from.numbers, hidden, numbers);
    else
      std::fill_n(numbers, hidden, std::byte{0});
    to.scales[scale] = from.scale;
    return {};
  }

  /// A document that is read in parts, chunk after chunk, is unpacked once: each thread keeps its last one.
  Result<const std::uint16_t*> unpacked_rows(std::size_t i, std::int64_t rows) const {
    struct Last {
      std::uint64_t store = 0;
      std::size_t document = 0;
      std::int64_t rows = 0;
      std::vector<std::uint16_t> states;
    };
    thread_local Last last;
    const bool same = last.store == serial_ && last.document == i;
    if (same && last.rows >= rows) return static_cast<const std::uint16_t*>(last.states.data());
    if (same) rows = documents_[i].tokens;
    last.store = 0;
    DocumentStates document;
    EAGLET_RETURN_IF_ERROR(shard(i).read_tokens(places_[i].entry, &document));
    EAGLET_RETURN_IF_ERROR(take_memory(rows, &last.states));
    EAGLET_RETURN_IF_ERROR(shard(i).decode(places_[i].entry, document.loss_mask, rows, last.states.data()));
    last.store = serial_;
    last.document = i;
    last.rows = rows;
    return static_cast<const std::uint16_t*>(last.states.data());
  }
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
  const std::uint64_t serial_ = next_serial();  // an address may come again, this does not
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
