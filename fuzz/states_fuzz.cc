#include <vector>

#include "fuzz_input.h"
#include "store/state_codec.h"

// The payload of a record in every form, under a header of three slots of width 5 and eight tokens.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes < 2) return 0;
  eaglet::StoreHeader header;
  header.hidden = 5;
  header.aux_layers = {2, 3};
  std::vector<std::uint8_t> mask;
  for (int t = 0; t < 8; ++t) mask.push_back((data[1] >> t) & 1);
  const std::uint8_t encoding = data[0] & 0x83;
  const auto form = eaglet::form_of(encoding);
  if (form == eaglet::StateEncoding::kElsewhere) return 0;  // names files
  if (form == eaglet::StateEncoding::kFp8) header.dtype = eaglet::Dtype::kF8E4M3;
  if (!eaglet::check_payload_bytes(header, encoding, mask.size(), bytes - 2).ok()) return 0;
  std::vector<std::uint16_t> out(8 * 3 * 5);
  const eaglet::ReadBase base = [](std::int64_t rows, std::vector<std::uint16_t>* states) {
    states->assign(static_cast<std::size_t>(rows * 15), 0x3f80);
    return eaglet::Status();
  };
  for (const std::int64_t rows : {8, 3})
    (void)eaglet::decode_states(header, encoding, reinterpret_cast<const std::byte*>(data) + 2, bytes - 2,
                                mask, rows, base, out.data());
  return 0;
}
