#include "store/shard_reader.h"

#include <fmt/format.h>

#include <cstring>

namespace eaglet {
namespace {
constexpr const char* kAdvice =
    "remove this shard and run the same extract command again: only its documents are made anew";
}  // namespace

Result<ShardReader> ShardReader::open(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
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

Result<const std::uint16_t*> ShardReader::states(std::size_t i) const {
  const RecordHead& head = entries()[i].head;
  EAGLET_RETURN_IF_ERROR(at(i, check_same_head(i)));
  EAGLET_RETURN_IF_ERROR(at(i, check_record_states(head, record(i))));
  return unchecked_states(i);
}

const std::uint16_t* ShardReader::unchecked_states(std::size_t i) const {
  return reinterpret_cast<const std::uint16_t*>(record(i) + entries()[i].head.states_offset());
}

void ShardReader::release_states(std::size_t i) const {
  const StoreHeader& h = header();
  const auto bytes = static_cast<std::uint64_t>(entries()[i].head.tokens * h.slots() * h.hidden) * 2;
  file_.release(entries()[i].offset + static_cast<std::uint64_t>(entries()[i].head.states_offset()), bytes);
}

Status ShardReader::verify(std::size_t i) const {
  DocumentStates document;
  EAGLET_RETURN_IF_ERROR(read_tokens(i, &document));
  EAGLET_ASSIGN_OR_RETURN(const std::uint16_t* values, states(i));
  return at(i, check_finite(header(), values, entries()[i].head.tokens));
}

}  // namespace eaglet
