#include "store/store_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/files.h"
#include "base/interrupt.h"
#include "store/shard_reader.h"
#include "store/shard_writer.h"
#include "store/store_files.h"

namespace eaglet {
namespace {

Status stopped(const std::string& where) {
  return Status(StatusCode::kInterrupted, "stopped by a signal; what was copied stays", where,
                "run the same command again to go on");
}

/// Where a document may begin at or behind `at`: records start at multiples of 64.
std::uint64_t next_record(const MappedFile& file, std::uint64_t at) {
  for (at = round_up(at, kShardAlignment); at + sizeof(RecordHead) <= file.bytes(); at += kShardAlignment)
    if (std::memcmp(file.data() + at, kRecordMagic, 8) == 0) return at;
  return file.bytes();
}

/// Every document of a damaged shard that is whole, whatever lies between them; names of damaged ones whose
/// ids can still be read go to `lost`.
class Salvage {
 public:
  Salvage(const StoreHeader& header, const MappedFile& file) : header_(header), file_(file) {}

  Status each(std::uint64_t first_record,
              const std::function<Status(const DocumentStates&, std::uint8_t)>& use,
              std::vector<std::string>* lost) {
    for (std::uint64_t at = next_record(file_, first_record); at < file_.bytes();) {
      const std::byte* record = file_.data() + at;
      const auto head = decode_record_head(header_, record, file_.bytes() - at);
      if (!head.ok()) {  // also the copies of heads in the directory end here: they have no record behind
        at = next_record(file_, at + 1);
        continue;
      }
      DocumentStates document;
      if (decode_record_meta(*head, record, &document).ok()) {
        if (check_record_states(*head, record).ok() && unpack(*head, record, &document).ok())
          EAGLET_RETURN_IF_ERROR(use(document, head->encoding));
        else
          lost->push_back(document.id);
        at += head->record_bytes;
      } else {
        at = next_record(file_, at + 1);
      }
    }
    return {};
  }

 private:
  Status unpack(const RecordHead& head, const std::byte* record, DocumentStates* document) {
    const auto tokens = static_cast<std::int64_t>(head.tokens);
    document->states.resize(static_cast<std::size_t>(tokens * header_.slots() * header_.hidden));
    const ReadBase read_base = [this](std::int64_t rows, std::vector<std::uint16_t>* states) -> Status {
      const auto numbers = static_cast<std::size_t>(rows * header_.slots() * header_.hidden);
      if (base_.size() < numbers) return Status(StatusCode::kDataLoss, "the shard's first document is lost");
      states->assign(base_.begin(), base_.begin() + static_cast<std::ptrdiff_t>(numbers));
      return {};
    };
    EAGLET_RETURN_IF_ERROR(decode_states(header_, head.encoding, record + head.states_offset(),
                                         head.states_bytes, document->loss_mask, tokens, read_base,
                                         document->states.data()));
    if (first_) base_ = document->states;
    first_ = false;
    return {};
  }

  const StoreHeader& header_;
  const MappedFile& file_;
  std::vector<std::uint16_t> base_;
  bool first_ = true;  // nothing was unpacked yet: this is the shard's first document, when that is whole
};

Status repair_shard(const std::string& path, RepairReport* report) {
  EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  std::uint64_t first = 0;
  const auto header = decode_shard_header(file.data(), file.bytes(), &first);
  if (!header.ok())
    return header.status().at(path).advise(
        "nothing can be saved without the header: remove this shard and extract again");
  EAGLET_RETURN_IF_ERROR(remove_all(path + ".tmp"));
  EAGLET_ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::create(path, *header));
  std::int64_t kept = 0;
  const auto keep = [&](const DocumentStates& document, std::uint8_t encoding) {
    ++kept;
    // A reference is not copied: its numbers were just read, so they are stored here.
    const std::uint8_t form = form_of(encoding) == StateEncoding::kElsewhere ? 0 : encoding;
    return writer.append(*header, document, form);
  };
  EAGLET_RETURN_IF_ERROR(Salvage(*header, file).each(first, keep, &report->lost));
  report->kept += kept;
  ++report->shards;
  EAGLET_RETURN_IF_ERROR(rename_synced(path, path + ".damaged"));
  if (kept == 0) return remove_all(path + ".tmp");
  return writer.finish();
}

}  // namespace

Result<CopyReport> copy_store(const std::vector<std::string>& inputs, const std::string& output,
                              const StoreWriterOptions& options,
                              const std::function<bool(const StoredDocument&)>& wanted, Progress& progress) {
  std::vector<std::unique_ptr<StoreReader>> readers;
  std::uint64_t total = 0;
  for (const std::string& input : inputs) {
    EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<StoreReader> reader, StoreReader::open(input));
    if (!readers.empty())
      EAGLET_RETURN_IF_ERROR(check_same_header(reader->header(), readers.front()->header()).at(input));
    total += reader->documents().size();
    readers.push_back(std::move(reader));
  }
  if (readers.empty())
    return Status(StatusCode::kUsage, "no store to copy from", "eaglet store", "name one or more");
  StoreHeader header = readers.front()->header();
  header.dtype = options.encoding == StateEncoding::kFp8 ? Dtype::kF8E4M3 : Dtype::kBF16;
  EAGLET_ASSIGN_OR_RETURN(const auto writer, StoreWriter::open(output, header, options));
  std::unordered_set<std::string> there(writer->finished_ids().begin(), writer->finished_ids().end());
  CopyReport report;
  DocumentStates states;
  std::uint64_t seen = 0;
  progress.begin("copy states", total, "documents");
  for (const auto& reader : readers) {
    for (std::size_t i = 0; i < reader->documents().size(); ++i) {
      if (interrupted()) return stopped(output);
      const StoredDocument& document = reader->documents()[i];
      progress.update(++seen);
      if (!wanted(document)) {
        ++report.left_out;
      } else if (there.contains(document.id)) {
        ++report.already_there;
      } else {
        EAGLET_RETURN_IF_ERROR(reader->read_into(i, &states));
        EAGLET_RETURN_IF_ERROR(writer->append(states));
        there.insert(document.id);
        ++report.documents;
      }
    }
  }
  EAGLET_RETURN_IF_ERROR(writer->finish());
  progress.end(fmt::format("{} documents copied, {} were there, {} left out", report.documents,
                           report.already_there, report.left_out));
  return report;
}

Result<RepairReport> repair_store(const std::string& directory, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::take(directory));
  EAGLET_ASSIGN_OR_RETURN(const StoreFiles files, list_store(directory));
  RepairReport report;
  progress.begin("look for damage", files.finished.size(), "shards");
  std::uint64_t done = 0;
  for (const std::uint64_t number : files.finished) {
    if (interrupted()) return stopped(directory);
    const std::string path = shard_path(directory, number);
    bool whole = false;
    if (const auto shard = ShardReader::open(path); shard.ok()) {
      whole = true;
      for (std::size_t i = 0; whole && i < shard->entries().size(); ++i) whole = shard->verify(i).ok();
    }
    if (!whole) {
      progress.note(path + " is damaged: its whole documents go into a new shard");
      EAGLET_RETURN_IF_ERROR(repair_shard(path, &report));
    }
    progress.update(++done);
  }
  progress.end(fmt::format("{} shards repaired, {} documents kept in them", report.shards, report.kept));
  return report;
}

}  // namespace eaglet
