#include "store/state_planes.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace eaglet {
namespace {

constexpr std::uint64_t kStored = std::uint64_t{1} << 63;  // in a size: the plane is not packed
constexpr int kPlanes = 4;  // of a slot: high and low bytes; high and low bytes of the differences

struct Table {
  std::uint32_t prefix_rows = 0;  // rows that are differences to the shard's first document
  std::uint32_t zero = 0;
  // then slots * kPlanes sizes
};

Status corrupt_planes(const std::string& what) {
  return Status(StatusCode::kDataLoss, "the packed states are damaged: " + what);
}

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

ZSTD_CCtx* pack_context() {
  // Level 3 finds short matches in noise and gets worse by them (0.70 instead of 0.68); only long ones pay.
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context = [] {
    std::unique_ptr<ZSTD_CCtx, FreeContext> made(ZSTD_createCCtx());
    if (made) {
      ZSTD_CCtx_setParameter(made.get(), ZSTD_c_compressionLevel, 1);
      ZSTD_CCtx_setParameter(made.get(), ZSTD_c_strategy, ZSTD_fast);
      ZSTD_CCtx_setParameter(made.get(), ZSTD_c_minMatch, 7);
    }
    return made;
  }();
  return context.get();
}

ZSTD_DCtx* unpack_context() {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  return context.get();
}

/// Appends the plane, packed when that is smaller; returns its entry in the table.
std::uint64_t add_plane(const std::string& plane, std::string* payload) {
  const std::size_t start = payload->size();
  const std::size_t room = ZSTD_compressBound(plane.size());
  payload->resize(start + room);
  ZSTD_CCtx* context = pack_context();
  const std::size_t packed =
      context == nullptr ? room
                         : ZSTD_compress2(context, payload->data() + start, room, plane.data(), plane.size());
  if (!ZSTD_isError(packed) && packed < plane.size()) {
    payload->resize(start + packed);
    return packed;
  }
  payload->resize(start);
  *payload += plane;
  return plane.size() | kStored;
}

/// Unpacks the first `wanted` bytes of a plane that has `whole` of them.
Status unpack(const std::byte* packed, std::uint64_t entry, std::size_t whole, std::size_t wanted,
              const std::uint8_t** plane, std::vector<std::uint8_t>* buffer) {
  const std::uint64_t bytes = entry & ~kStored;
  if ((entry & kStored) != 0) {
    if (bytes != whole) return corrupt_planes("a plane has another size");
    *plane = reinterpret_cast<const std::uint8_t*>(packed);
    return {};
  }
  buffer->resize(wanted);
  *plane = buffer->data();
  ZSTD_DCtx* context = unpack_context();
  if (context == nullptr) return Status(StatusCode::kNoSpace, "there is no memory to unpack states");
  if (wanted == whole) {
    const std::size_t made = ZSTD_decompressDCtx(context, buffer->data(), wanted, packed, bytes);
    if (ZSTD_isError(made) || made != whole) return corrupt_planes("a plane does not unpack to its size");
    return {};
  }
  ZSTD_DCtx_reset(context, ZSTD_reset_session_only);
  ZSTD_inBuffer in{packed, bytes, 0};
  ZSTD_outBuffer out{buffer->data(), wanted, 0};
  while (out.pos < out.size) {
    const std::size_t before = in.pos + out.pos;
    if (ZSTD_isError(ZSTD_decompressStream(context, &out, &in)) || in.pos + out.pos == before)
      return corrupt_planes("a plane ends too early");
  }
  return {};
}

/// A difference near zero in either direction becomes a small number.
std::uint16_t zigzag(std::uint16_t difference) {
  return static_cast<std::uint16_t>((difference << 1) ^ (0 - (difference >> 15)));
}
std::uint16_t unzigzag(std::uint16_t number) {
  return static_cast<std::uint16_t>((number >> 1) ^ (0 - (number & 1)));
}

/// The tokens of a slot in stored order, and how many of them are differences.
struct Track {
  const std::int32_t* tokens = nullptr;  // nullptr: 0, 1, 2, ...
  std::int64_t rows = 0, prefix = 0;
  std::int64_t token(std::int64_t row) const { return tokens == nullptr ? row : tokens[row]; }
};
Track track_of(const StoreHeader& header, const KeptRows& kept, bool dropped, std::int64_t slot,
               std::int64_t prefix_rows) {
  if (dropped && slot + 1 == header.slots()) return {kept.last_tokens.data(), kept.last_rows(), 0};
  return {nullptr, kept.aux_rows, std::min(prefix_rows, kept.aux_rows)};
}

std::int64_t common_rows(const DocumentStates& document, const PrefixBase* base) {
  if (base == nullptr) return 0;
  const auto end =
      std::mismatch(base->ids.begin(), base->ids.end(), document.input_ids.begin(), document.input_ids.end());
  return std::min<std::int64_t>(end.first - base->ids.begin(), UINT32_MAX);
}

void split(const std::uint16_t* numbers, std::int64_t hidden, char* high, char* low) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    high[i] = static_cast<char>(numbers[i] >> 8);
    low[i] = static_cast<char>(numbers[i] & 0xffu);
  }
}
void split_differences(const std::uint16_t* numbers, const std::uint16_t* base, std::int64_t hidden,
                       char* high, char* low) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    const std::uint16_t bits = zigzag(static_cast<std::uint16_t>(numbers[i] - base[i]));
    high[i] = static_cast<char>(bits >> 8);
    low[i] = static_cast<char>(bits & 0xffu);
  }
}
void join(const std::uint8_t* high, const std::uint8_t* low, std::int64_t hidden, std::uint16_t* out) {
  for (std::int64_t i = 0; i < hidden; ++i) out[i] = static_cast<std::uint16_t>((high[i] << 8) | low[i]);
}

}  // namespace

std::uint64_t plane_table_bytes(const StoreHeader& header) {
  return sizeof(Table) + static_cast<std::uint64_t>(header.slots()) * kPlanes * sizeof(std::uint64_t);
}

std::string encode_planes(const StoreHeader& header, const DocumentStates& document, const KeptRows& kept,
                          bool dropped, const PrefixBase* base) {
  const std::int64_t slots = header.slots(), hidden = header.hidden;
  Table table;
  table.prefix_rows = static_cast<std::uint32_t>(std::min(common_rows(document, base), kept.aux_rows));
  std::vector<std::uint64_t> sizes;
  std::string payload(plane_table_bytes(header), '\0');
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const Track track = track_of(header, kept, dropped, slot, table.prefix_rows);
    std::string planes[kPlanes];
    char* next[kPlanes];
    for (int p = 0; p < kPlanes; ++p) {
      planes[p].resize(static_cast<std::size_t>((p < 2 ? track.rows - track.prefix : track.prefix) * hidden));
      next[p] = planes[p].data();
    }
    for (std::int64_t row = 0; row < track.rows; ++row) {
      const std::int64_t at = (track.token(row) * slots + slot) * hidden;
      const std::uint16_t* numbers = document.states.data() + at;
      if (row < track.prefix) {
        split_differences(numbers, base->states.data() + at, hidden, next[2], next[3]);
        next[2] += hidden, next[3] += hidden;
      } else {
        split(numbers, hidden, next[0], next[1]);
        next[0] += hidden, next[1] += hidden;
      }
    }
    for (const std::string& plane : planes)
      sizes.push_back(plane.empty() ? kStored : add_plane(plane, &payload));
  }
  std::memcpy(payload.data(), &table, sizeof table);
  std::memcpy(payload.data() + sizeof table, sizes.data(), sizes.size() * sizeof(std::uint64_t));
  return payload;
}

Status decode_planes(const StoreHeader& header, const std::byte* payload, std::uint64_t bytes,
                     const KeptRows& kept, bool dropped, std::int64_t rows, const ReadBase& read_base,
                     std::uint16_t* out) {
  const std::int64_t slots = header.slots(), hidden = header.hidden;
  if (bytes < plane_table_bytes(header)) return corrupt_planes("its table is cut");
  Table table;
  std::memcpy(&table, payload, sizeof table);
  if (table.prefix_rows > kept.aux_rows) return corrupt_planes("a common beginning longer than the document");
  std::vector<std::uint16_t> base;
  const std::int64_t base_rows = std::min<std::int64_t>(table.prefix_rows, rows);
  if (base_rows > 0) {
    EAGLET_RETURN_IF_ERROR(read_base(base_rows, &base));
    if (static_cast<std::int64_t>(base.size()) < base_rows * slots * hidden)
      return corrupt_planes("the document it shares a beginning with is shorter");
  }
  std::uint64_t at = plane_table_bytes(header);
  thread_local std::vector<std::uint8_t> buffers[kPlanes];
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const Track track = track_of(header, kept, dropped, slot, table.prefix_rows);
    std::int64_t wanted = 0;
    while (wanted < track.rows && track.token(wanted) < rows) ++wanted;
    const std::uint8_t* planes[kPlanes];
    for (int p = 0; p < kPlanes; ++p) {
      std::uint64_t entry = 0;
      std::memcpy(&entry, payload + sizeof table + (static_cast<std::uint64_t>(slot) * kPlanes + p) * 8, 8);
      if ((entry & ~kStored) > bytes - at) return corrupt_planes("a plane leaves the record");
      const std::int64_t whole = p < 2 ? track.rows - track.prefix : track.prefix;
      const std::int64_t some =
          p < 2 ? std::max<std::int64_t>(wanted - track.prefix, 0) : std::min(wanted, track.prefix);
      EAGLET_RETURN_IF_ERROR(unpack(payload + at, entry, static_cast<std::size_t>(whole * hidden),
                                    static_cast<std::size_t>(some * hidden), &planes[p], &buffers[p]));
      at += entry & ~kStored;
    }
    for (std::int64_t row = 0; row < wanted; ++row) {
      const bool difference = row < track.prefix;
      const int p = difference ? 2 : 0;
      const std::int64_t from = (difference ? row : row - track.prefix) * hidden;
      const std::int64_t to = (track.token(row) * slots + slot) * hidden;
      join(planes[p] + from, planes[p + 1] + from, hidden, out + to);
      if (!difference) continue;
      for (std::int64_t i = 0; i < hidden; ++i)
        out[to + i] =
            static_cast<std::uint16_t>(unzigzag(out[to + i]) + base[static_cast<std::size_t>(to + i)]);
    }
  }
  if (at != bytes) return corrupt_planes("there is something behind its planes");
  return {};
}

}  // namespace eaglet
