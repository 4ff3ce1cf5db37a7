#include "store/state_reference.h"

#include <fmt/format.h>

#include <cstring>

#include "base/files.h"
#include "base/hash.h"

namespace eaglet {
namespace {

constexpr const char* kReferenceAdvice =
    "put the file back as it was, or take these states in again (without --in-place they are copied)";

struct ReferenceHead {
  std::uint64_t content_checksum;
  std::uint64_t file_bytes;
  std::uint32_t path_bytes;
  std::uint32_t slots;
};
struct ReferenceSlot {
  std::uint64_t offset;
  std::uint64_t row_bytes;
  std::uint64_t dtype;
};

Status corrupt_reference(const std::string& what) {
  return Status(StatusCode::kDataLoss, "the reference to states elsewhere is damaged: " + what);
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::kBF16 || dtype == Dtype::kF16 || dtype == Dtype::kF32;
}

/// Does every row of the slot lie in the file?
bool slot_fits(const StateReference::Slot& slot, std::uint64_t file_bytes, std::int64_t tokens,
               std::int64_t hidden) {
  const std::uint64_t row = static_cast<std::uint64_t>(hidden) * dtype_bytes(slot.dtype);
  std::uint64_t reach = 0;
  return tokens > 0 && slot.row_bytes >= row &&
         !__builtin_mul_overflow(slot.row_bytes, static_cast<std::uint64_t>(tokens - 1), &reach) &&
         !__builtin_add_overflow(reach, slot.offset, &reach) && reach <= file_bytes &&
         row <= file_bytes - reach;
}

}  // namespace

std::string encode_reference(const StateReference& reference, std::uint64_t content_checksum) {
  const ReferenceHead head{content_checksum, reference.file_bytes,
                           static_cast<std::uint32_t>(reference.path.size()),
                           static_cast<std::uint32_t>(reference.slots.size())};
  std::string payload(reinterpret_cast<const char*>(&head), sizeof head);
  for (const StateReference::Slot& slot : reference.slots) {
    const ReferenceSlot stored{slot.offset, slot.row_bytes, static_cast<std::uint64_t>(slot.dtype)};
    payload.append(reinterpret_cast<const char*>(&stored), sizeof stored);
  }
  return payload + reference.path;
}

Result<StateReference> parse_reference(const StoreHeader& header, const std::byte* payload,
                                       std::uint64_t bytes, std::uint64_t* content_checksum) {
  ReferenceHead head;
  if (bytes < sizeof head) return corrupt_reference("cut");
  std::memcpy(&head, payload, sizeof head);
  if (head.slots != header.slots() ||
      bytes != sizeof head + std::uint64_t{head.slots} * sizeof(ReferenceSlot) + head.path_bytes)
    return corrupt_reference("its sizes do not fit together");
  StateReference reference;
  reference.file_bytes = head.file_bytes;
  *content_checksum = head.content_checksum;
  for (std::uint32_t i = 0; i < head.slots; ++i) {
    ReferenceSlot slot;
    std::memcpy(&slot, payload + sizeof head + i * sizeof slot, sizeof slot);
    if (slot.dtype > 1000 || !is_float(static_cast<Dtype>(slot.dtype)))
      return corrupt_reference("an unknown number type");
    reference.slots.push_back({static_cast<Dtype>(slot.dtype), slot.offset, slot.row_bytes});
  }
  reference.path.assign(reinterpret_cast<const char*>(payload) + bytes - head.path_bytes, head.path_bytes);
  if (reference.path.find('\0') != std::string::npos) return corrupt_reference("a path that is none");
  return reference;
}

Status decode_reference(const StoreHeader& header, const std::byte* payload, std::uint64_t bytes,
                        std::int64_t tokens, std::int64_t rows, std::uint16_t* out) {
  std::uint64_t checksum = 0;
  EAGLET_ASSIGN_OR_RETURN(const StateReference reference, parse_reference(header, payload, bytes, &checksum));
  auto file = MappedFile::open(reference.path);
  if (!file.ok()) return file.status().advise(kReferenceAdvice);
  if (file->bytes() != reference.file_bytes)
    return Status(StatusCode::kDataLoss,
                  fmt::format("the file has {} bytes, it had {} when its states were taken in", file->bytes(),
                              reference.file_bytes),
                  reference.path, kReferenceAdvice);
  const std::int64_t slots = header.slots(), hidden = header.hidden;
  std::vector<float> row(static_cast<std::size_t>(hidden));
  for (std::int64_t s = 0; s < slots; ++s) {
    const StateReference::Slot& slot = reference.slots[static_cast<std::size_t>(s)];
    if (!slot_fits(slot, file->bytes(), tokens, hidden)) return corrupt_reference("its rows leave the file");
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::byte* from = file->data() + slot.offset + static_cast<std::uint64_t>(t) * slot.row_bytes;
      std::uint16_t* to = out + (t * slots + s) * hidden;
      if (slot.dtype == Dtype::kBF16) {
        std::memcpy(to, from, static_cast<std::size_t>(hidden) * 2);
        continue;
      }
      convert_to_f32(slot.dtype, from, row.size(), row.data());
      for (std::int64_t i = 0; i < hidden; ++i) to[i] = f32_to_bf16(row[static_cast<std::size_t>(i)]);
    }
  }
  if (rows == tokens && xxh64(out, static_cast<std::size_t>(rows * slots * hidden) * 2) != checksum)
    return Status(StatusCode::kDataLoss, "the states in the file are not those that were taken in",
                  reference.path, kReferenceAdvice);
  return {};
}

}  // namespace eaglet
