#include <cstring>
#include <vector>

#include "fuzz_input.h"
#include "store/shard_format.h"

// Built with checksums always right (same_checksum), or no input would ever get past them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t bytes) {
  std::vector<std::uint64_t> aligned(bytes / 8 + 1);  // as a mapped file is
  if (bytes > 0) std::memcpy(aligned.data(), input, bytes);
  const auto* data = reinterpret_cast<const std::byte*>(aligned.data());
  const auto shard = eaglet::decode_shard(data, bytes);
  eaglet::DocumentStates document;
  if (shard.ok()) {  // a finished one, read through its directory
    for (const auto& entry : shard->entries) {
      promise(entry.offset + entry.head.record_bytes <= bytes);
      (void)eaglet::decode_record_meta(entry.head, data + entry.offset, &document);
      (void)eaglet::check_record_states(entry.head, data + entry.offset);
    }
  }
  std::uint64_t at = 0;  // and as an unfinished one, record by record
  const auto header = eaglet::decode_shard_header(data, bytes, &at);
  while (header.ok() && at < bytes) {
    const auto head = eaglet::decode_record_head(*header, data + at, bytes - at);
    if (!head.ok() || !eaglet::decode_record_meta(*head, data + at, &document).ok()) break;
    promise(document.input_ids.size() == document.loss_mask.size());
    (void)eaglet::check_record_states(*head, data + at);
    at += head->record_bytes;
  }
  return 0;
}
