#include "store/shard_reader.h"

#include <fmt/format.h>

#include <cstring>

#include "store/state_codec.h"

namespace eaglet {
namespace {
constexpr const char* kAdvice =
    "remove this shard and run the same extract command again: only its documents are made anew";
}  // namespace

Result<ShardReader> ShardReader::open(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  // A disk may be set to read megabytes around each touched page; a document's head and a row of states are a
  // few pages.
  file.expect_scattered();
  auto directory = decode_shard(file.data(), file.bytes());
  if (!directory.ok()) return directory.status().at(path).advise(kAdvice);
  return ShardReader(std::move(file), std::move(*directory));
}

Status ShardReader::at(std::size_t i, const Status& status) const {
  return status.at(fmt::format("{}: document {} '{}'", path(), i, entries()[i].name)).advise(kAdvice);
}

// The directory's copy was checked at opening; a record that differs from it is damaged.
Status ShardReader::check_same_head(std::size_t i) const {
  if (std::memcmp(record(i), &entries()[i].head, sizeof(RecordHead)) == 0) return {};
  return Status(StatusCode::kDataLoss, "the document's head differs from the shard's directory");
}

Status ShardReader::read_tokens(std::size_t i, DocumentStates* document) const {
  EAGLET_RETURN_IF_ERROR(at(i, check_same_head(i)));
  EAGLET_RETURN_IF_ERROR(at(i, decode_record_meta(entries()[i].head, record(i), document)));
  if (document->id != entries()[i].name)
    return at(i, Status(StatusCode::kDataLoss, "the document's name differs from the shard's directory"));
  return {};
}

Status ShardReader::check_states(std::size_t i) const {
  EAGLET_RETURN_IF_ERROR(at(i, check_same_head(i)));
  will_read_states(i);
  return at(i, check_record_states(entries()[i].head, record(i)));
}

void ShardReader::will_read_states(std::size_t i) const {
  const RecordHead& head = entries()[i].head;
  file_.expect(entries()[i].offset + head.states_offset(), head.states_bytes);
}

void ShardReader::will_read_rows(std::size_t i, std::int64_t first, std::int64_t count) const {
  const auto row_bytes = static_cast<std::uint64_t>(header().slots() * header().hidden) * 2;
  file_.expect(
      entries()[i].offset + entries()[i].head.states_offset() + static_cast<std::uint64_t>(first) * row_bytes,
      static_cast<std::uint64_t>(count) * row_bytes);
}

void ShardReader::release_states(std::size_t i) const {
  const RecordHead& head = entries()[i].head;
  file_.release(entries()[i].offset + head.states_offset(), head.states_bytes);
}

const std::uint16_t* ShardReader::raw_states(std::size_t i) const {
  const RecordHead& head = entries()[i].head;
  if (head.encoding != static_cast<std::uint8_t>(StateEncoding::kRaw)) return nullptr;
  return reinterpret_cast<const std::uint16_t*>(record(i) + head.states_offset());
}

Result<Fp8Rows> ShardReader::fp8_rows(std::size_t i, const std::vector<std::uint8_t>& mask) const {
  const RecordHead& head = entries()[i].head;
  Result<Fp8Rows> rows =
      Fp8Rows::open(header(), head.encoding, record(i) + head.states_offset(), head.states_bytes, mask);
  if (!rows.ok()) return at(i, rows.status());
  return rows;
}

Status ShardReader::decode(std::size_t i, const std::vector<std::uint8_t>& mask, std::int64_t rows,
                           std::uint16_t* out) const {
  const RecordHead& head = entries()[i].head;
  will_read_states(i);
  // Documents of the lossless form may begin as the shard's first one does; that one begins alone.
  const ReadBase read_base = [this, i](std::int64_t base_rows, std::vector<std::uint16_t>* base) -> Status {
    if (i == 0) return Status(StatusCode::kDataLoss, "the shard's first document refers to itself");
    DocumentStates first;
    EAGLET_RETURN_IF_ERROR(read_tokens(0, &first));
    EAGLET_RETURN_IF_ERROR(check_states(0));
    if (base_rows > static_cast<std::int64_t>(first.input_ids.size()))
      return Status(StatusCode::kDataLoss, "the document it shares a beginning with is shorter");
    base->resize(static_cast<std::size_t>(base_rows * header().slots() * header().hidden));
    return decode(0, first.loss_mask, base_rows, base->data());
  };
  return at(i, decode_states(header(), head.encoding, record(i) + head.states_offset(), head.states_bytes,
                             mask, rows, read_base, out));
}

Status ShardReader::verify(std::size_t i) const {
  DocumentStates document;
  EAGLET_RETURN_IF_ERROR(read_tokens(i, &document));
  EAGLET_RETURN_IF_ERROR(check_states(i));
  const std::uint16_t* values = raw_states(i);
  const std::int64_t tokens = entries()[i].head.tokens;
  if (values == nullptr) {
    document.states.resize(static_cast<std::size_t>(tokens * header().slots() * header().hidden));
    EAGLET_RETURN_IF_ERROR(decode(i, document.loss_mask, tokens, document.states.data()));
    values = document.states.data();
  }
  return at(i, check_finite(header(), values, tokens));
}

}  // namespace eaglet
