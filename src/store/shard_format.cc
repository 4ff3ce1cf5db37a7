#include "store/shard_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/hash.h"
#include "formats/json.h"
#include "store/state_codec.h"

namespace eaglet {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are written as they lie in memory");

constexpr char kHeaderMagic[] = "EGLTSTO\n";
constexpr char kFooterMagic[] = "EGLTEND\n";
constexpr const char* kLayerConvention = "residual_after_k_layers";

struct HeaderPrefix {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t checksum;
  std::uint32_t json_bytes;
  std::uint32_t zero;
};
static_assert(sizeof(HeaderPrefix) == 32);

Status corrupt_shard(const std::string& what) {
  return Status(StatusCode::kDataLoss, what);
}

/// Fuzzers do not guess checksums: in their build (only there) every one is right.
bool same_checksum(std::uint64_t computed, std::uint64_t stored) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  return computed == stored || true;
#else
  return computed == stored;
#endif
}

std::uint64_t header_checksum(const std::byte* data, std::uint64_t header_bytes) {
  std::string copy(reinterpret_cast<const char*>(data), header_bytes);
  std::memset(copy.data() + offsetof(HeaderPrefix, checksum), 0, sizeof(std::uint64_t));
  return xxh64(copy);
}

std::uint64_t head_checksum(RecordHead head) {
  head.head_checksum = 0;
  return xxh64(&head, sizeof head);
}

std::uint64_t directory_checksum(const ShardFooter& footer, const void* directory, std::uint64_t bytes) {
  return xxh64(directory, bytes, xxh64(&footer, 16));
}

bool all_zero(const std::byte* from, std::uint64_t bytes) {
  return std::all_of(from, from + bytes, [](std::byte b) { return b == std::byte{0}; });
}

Json header_json(const StoreHeader& header) {
  Json json;
  json["target_identity"] = header.target_identity;
  json["target_name"] = header.target_name;
  json["hidden"] = header.hidden;
  json["target_layers"] = header.target_layers;
  json["aux_layers"] = header.aux_layers;
  json["layer_convention"] = kLayerConvention;
  json["last_state"] = header.last_state_is_pre_norm ? "pre_norm" : "post_norm";
  json["dtype"] = std::string(dtype_name(header.dtype));
  return json;
}

Status unknown(const std::string& what) {
  return Status(StatusCode::kConfig, what, "", "use the eaglet that wrote this store, or extract it again");
}

Result<StoreHeader> header_from_json(const Json& json) {
  StoreHeader header;
  try {
    header.target_identity = json.at("target_identity").get<std::string>();
    header.target_name = json.at("target_name").get<std::string>();
    header.hidden = json.at("hidden").get<std::int64_t>();
    header.target_layers = json.at("target_layers").get<std::int64_t>();
    header.aux_layers = json.at("aux_layers").get<std::vector<std::int32_t>>();
    const auto convention = json.at("layer_convention").get<std::string>();
    if (convention != kLayerConvention)
      return unknown("the layer convention '" + convention + "' is not known");
    const auto last = json.at("last_state").get<std::string>();
    if (last != "pre_norm" && last != "post_norm")
      return unknown("the last state '" + last + "' is not known");
    header.last_state_is_pre_norm = last == "pre_norm";
    const auto name = json.at("dtype").get<std::string>();
    const auto dtype = dtype_from_name(name);
    if (!dtype || (*dtype != Dtype::kBF16 && *dtype != Dtype::kF8E4M3))
      return unknown("states of type '" + name + "' are not known");
    header.dtype = *dtype;
  } catch (const Json::exception& error) {
    return corrupt_shard(fmt::format("the header's JSON is not one of ours ({})", error.what()));
  }
  if (header.hidden < 1 || header.hidden > (1 << 24) || header.aux_layers.size() > 4096)
    return corrupt_shard(
        fmt::format("the header tells of {} layers of width {}", header.slots(), header.hidden));
  return header;
}

/// Bytes of a document's states in memory (bf16), or 0 when 64 bits do not hold the number.
std::uint64_t memory_bytes(const StoreHeader& header, std::uint64_t tokens) {
  return fixed_payload_bytes(header, static_cast<std::uint8_t>(StateEncoding::kRaw),
                             static_cast<std::int64_t>(tokens), 0);
}

}  // namespace

std::string encode_shard_header(const StoreHeader& header) {
  const std::string json = json_line(header_json(header));
  HeaderPrefix prefix = {};
  std::memcpy(prefix.magic, kHeaderMagic, 8);
  prefix.version = kShardVersion;
  prefix.json_bytes = static_cast<std::uint32_t>(json.size());
  prefix.header_bytes = static_cast<std::uint32_t>(round_up(sizeof prefix + json.size(), kShardAlignment));
  std::string bytes(reinterpret_cast<const char*>(&prefix), sizeof prefix);
  bytes += json;
  bytes.resize(prefix.header_bytes, '\0');
  const std::uint64_t checksum =
      header_checksum(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  std::memcpy(bytes.data() + offsetof(HeaderPrefix, checksum), &checksum, sizeof checksum);
  return bytes;
}

Result<StoreHeader> decode_shard_header(const std::byte* data, std::uint64_t bytes,
                                        std::uint64_t* header_bytes) {
  HeaderPrefix prefix;
  if (bytes < sizeof prefix)
    return corrupt_shard(fmt::format("the file has {} bytes, too few for a shard", bytes));
  std::memcpy(&prefix, data, sizeof prefix);
  if (std::memcmp(prefix.magic, kHeaderMagic, 8) != 0)
    return corrupt_shard("not a shard of an eaglet state store");
  if (prefix.version != kShardVersion)
    return unknown(
        fmt::format("the shard has format version {}, this program reads {}", prefix.version, kShardVersion));
  if (prefix.header_bytes > kMaxShardHeaderBytes || prefix.header_bytes > bytes ||
      prefix.header_bytes % kShardAlignment != 0 || prefix.json_bytes > prefix.header_bytes ||
      prefix.header_bytes - prefix.json_bytes < sizeof prefix)
    return corrupt_shard(
        fmt::format("the shard's header claims {} bytes in a file of {}", prefix.header_bytes, bytes));
  if (!same_checksum(header_checksum(data, prefix.header_bytes), prefix.checksum))
    return corrupt_shard("the shard's header is damaged (checksum)");
  const auto json = parse_json({reinterpret_cast<const char*>(data) + sizeof prefix, prefix.json_bytes});
  if (!json.ok()) return json.status();
  *header_bytes = prefix.header_bytes;
  return header_from_json(*json);
}

Status check_finite(const StoreHeader& header, const std::uint16_t* states, std::int64_t tokens) {
  const std::int64_t per_token = header.slots() * header.hidden;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::uint16_t* row = states + token * per_token;
    std::uint32_t bad = 0;  // branch-free over the row, so that the compiler can use vectors
    for (std::int64_t i = 0; i < per_token; ++i)
      bad |= static_cast<std::uint32_t>((row[i] & 0x7f80u) == 0x7f80u);
    if (bad == 0) continue;
    const auto* at =
        std::find_if(row, row + per_token, [](std::uint16_t v) { return (v & 0x7f80u) == 0x7f80u; });
    return Status(StatusCode::kNumeric, fmt::format("the state of token {}, slot {} of {} holds a {}", token,
                                                    (at - row) / header.hidden, header.slots(),
                                                    (*at & 0x7fu) != 0 ? "NaN" : "infinity"));
  }
  return {};
}

Status check_document(const StoreHeader& header, const DocumentStates& document) {
  const auto invalid = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, what, "document '" + document.id + "'");
  };
  const std::size_t tokens = document.input_ids.size();
  if (document.id.empty() || document.id.size() > UINT16_MAX)
    return invalid(fmt::format("a document's id has 1 to {} bytes, not {}", UINT16_MAX, document.id.size()));
  if (tokens == 0 || tokens > INT32_MAX)
    return invalid(fmt::format("a document of {} tokens cannot be stored", tokens));
  if (document.loss_mask.size() != tokens)
    return invalid(
        fmt::format("there are {} token ids but {} mask entries", tokens, document.loss_mask.size()));
  if (document.states.size() * sizeof(std::uint16_t) != memory_bytes(header, tokens))
    return invalid(fmt::format("{} state numbers for {} tokens of {} slots of {}", document.states.size(),
                               tokens, header.slots(), header.hidden));
  for (const std::int32_t id : document.input_ids)
    if (id < 0) return invalid(fmt::format("the token id {} is negative", id));
  for (const std::uint8_t bit : document.loss_mask)
    if (bit > 1) return invalid(fmt::format("the mask holds {}, must be 0 or 1", bit));
  return check_finite(header, document.states.data(), static_cast<std::int64_t>(tokens))
      .at("document '" + document.id + "'");
}

RecordHead encode_record(const DocumentStates& document, std::uint8_t encoding, const void* payload,
                         std::uint64_t payload_bytes, std::string* meta) {
  return encode_record(document, encoding, payload_bytes, xxh64(payload, payload_bytes), meta);
}

RecordHead encode_record(const DocumentStates& document, std::uint8_t encoding, std::uint64_t payload_bytes,
                         std::uint64_t payload_checksum, std::string* meta) {
  RecordHead head = {};
  std::memcpy(head.magic, kRecordMagic, 8);
  head.tokens = static_cast<std::uint32_t>(document.input_ids.size());
  const auto& mask = document.loss_mask;
  head.supervised_tokens = static_cast<std::uint32_t>(std::count(mask.begin(), mask.end(), 1));
  head.first_supervised = static_cast<std::uint32_t>(std::find(mask.begin(), mask.end(), 1) - mask.begin());
  head.name_bytes = static_cast<std::uint16_t>(document.id.size());
  head.encoding = encoding;
  head.states_bytes = payload_bytes;
  head.states_checksum = payload_checksum;
  meta->assign(reinterpret_cast<const char*>(document.input_ids.data()), std::size_t{head.tokens} * 4);
  meta->append(reinterpret_cast<const char*>(mask.data()), mask.size());
  meta->append(document.id);
  meta->resize(head.meta_bytes(), '\0');
  head.meta_checksum = xxh64(*meta);
  head.record_bytes = head.states_offset() + round_up(head.states_bytes, kShardAlignment);
  head.head_checksum = head_checksum(head);
  return head;
}

namespace {
Status check_head(const StoreHeader& header, const RecordHead& head) {
  if (std::memcmp(head.magic, kRecordMagic, 8) != 0)
    return corrupt_shard("there is no document where one should begin");
  if (!same_checksum(head_checksum(head), head.head_checksum))
    return corrupt_shard("the document's head is damaged (checksum)");
  if (form_of(head.encoding) > StateEncoding::kElsewhere ||
      (form_of(head.encoding) == StateEncoding::kFp8) != (header.dtype == Dtype::kF8E4M3))
    return unknown(fmt::format("states in the encoding {} of a store of {} are not known", head.encoding,
                               dtype_name(header.dtype)));
  if (head.tokens == 0 || head.tokens > INT32_MAX || head.name_bytes == 0 || head.zero != 0 ||
      !check_payload_bytes(header, head.encoding, head.tokens, head.states_bytes).ok() ||
      head.states_bytes > (std::uint64_t{1} << 62) ||
      head.record_bytes != head.states_offset() + round_up(head.states_bytes, kShardAlignment))
    return corrupt_shard(
        fmt::format("the sizes in the document's head do not fit together ({} tokens, {} bytes)", head.tokens,
                    head.record_bytes));
  return {};
}
}  // namespace

Result<RecordHead> decode_record_head(const StoreHeader& header, const std::byte* data, std::uint64_t bytes) {
  RecordHead head;
  if (bytes < sizeof head) return corrupt_shard(fmt::format("{} bytes are too few for a document", bytes));
  std::memcpy(&head, data, sizeof head);
  EAGLET_RETURN_IF_ERROR(check_head(header, head));
  if (head.record_bytes > bytes)
    return corrupt_shard(fmt::format("a document of {} bytes is cut to {}", head.record_bytes, bytes));
  return head;
}

Status decode_record_meta(const RecordHead& head, const std::byte* record, DocumentStates* document) {
  const std::byte* meta = record + head.meta_offset();
  if (!same_checksum(xxh64(meta, head.meta_bytes()), head.meta_checksum))
    return corrupt_shard("token ids or mask are damaged (checksum)");
  const std::size_t tokens = head.tokens;
  document->input_ids.resize(tokens);
  std::memcpy(document->input_ids.data(), meta, tokens * 4);
  const auto* mask = reinterpret_cast<const std::uint8_t*>(meta + tokens * 4);
  document->loss_mask.assign(mask, mask + tokens);
  document->id.assign(reinterpret_cast<const char*>(mask + tokens), head.name_bytes);
  // A writer of ours makes none of these; the checksum cannot tell what a foreign one meant.
  for (const std::int32_t id : document->input_ids)
    if (id < 0) return corrupt_shard(fmt::format("the token id {} is negative", id));
  for (const std::uint8_t bit : document->loss_mask)
    if (bit > 1) return corrupt_shard(fmt::format("the mask holds {}, must be 0 or 1", bit));
  const auto& bits = document->loss_mask;
  if (std::count(bits.begin(), bits.end(), 1) != static_cast<std::int64_t>(head.supervised_tokens) ||
      std::find(bits.begin(), bits.end(), 1) - bits.begin() !=
          static_cast<std::int64_t>(head.first_supervised))
    return corrupt_shard("the document's head and its mask disagree");
  return {};
}

Status check_record_states(const RecordHead& head, const std::byte* record) {
  const std::byte* states = record + head.states_offset();
  if (!same_checksum(xxh64(states, head.states_bytes), head.states_checksum))
    return corrupt_shard("the states are damaged (checksum)");
  if (!all_zero(states + head.states_bytes, head.record_bytes - head.states_offset() - head.states_bytes))
    return corrupt_shard("the padding behind the states is damaged");
  return {};
}

std::string encode_directory(const std::vector<RecordHead>& heads, const std::vector<std::string>& names,
                             std::uint64_t directory_offset) {
  std::string bytes(reinterpret_cast<const char*>(heads.data()), heads.size() * sizeof(RecordHead));
  for (const std::string& name : names) bytes += name;
  bytes.resize(round_up(bytes.size(), 8), '\0');
  ShardFooter footer = {};
  footer.directory_offset = directory_offset;
  footer.documents = heads.size();
  footer.checksum = directory_checksum(footer, bytes.data(), bytes.size());
  std::memcpy(footer.magic, kFooterMagic, 8);
  bytes.append(reinterpret_cast<const char*>(&footer), sizeof footer);
  return bytes;
}

namespace {
Result<ShardFooter> decode_footer(const std::byte* data, std::uint64_t bytes, std::uint64_t header_bytes) {
  ShardFooter footer;
  if (bytes - header_bytes < sizeof footer) return corrupt_shard("the shard ends before its directory");
  std::memcpy(&footer, data + bytes - sizeof footer, sizeof footer);
  if (std::memcmp(footer.magic, kFooterMagic, 8) != 0)
    return corrupt_shard("the shard has no directory at its end: it is cut or damaged");
  const std::uint64_t end = bytes - sizeof footer;
  if (footer.directory_offset < header_bytes || footer.directory_offset > end ||
      footer.documents > (end - footer.directory_offset) / sizeof(RecordHead))
    return corrupt_shard(
        fmt::format("the shard's directory of {} documents at byte {} does not fit into {} bytes",
                    footer.documents, footer.directory_offset, bytes));
  if (!same_checksum(
          directory_checksum(footer, data + footer.directory_offset, end - footer.directory_offset),
          footer.checksum))
    return corrupt_shard("the shard's directory is damaged (checksum)");
  return footer;
}
}  // namespace

Result<ShardDirectory> decode_shard(const std::byte* data, std::uint64_t bytes) {
  ShardDirectory shard;
  std::uint64_t offset = 0;
  EAGLET_ASSIGN_OR_RETURN(shard.header, decode_shard_header(data, bytes, &offset));
  EAGLET_ASSIGN_OR_RETURN(const ShardFooter footer, decode_footer(data, bytes, offset));
  const std::byte* heads = data + footer.directory_offset;
  const std::byte* name = heads + footer.documents * sizeof(RecordHead);
  const std::byte* end = data + bytes - sizeof footer;
  shard.entries.resize(footer.documents);
  for (std::size_t i = 0; i < shard.entries.size(); ++i) {
    DirectoryEntry& entry = shard.entries[i];
    const std::string place = fmt::format("document {}", i);
    std::memcpy(&entry.head, heads + i * sizeof(RecordHead), sizeof(RecordHead));
    EAGLET_RETURN_IF_ERROR(check_head(shard.header, entry.head).at(place));
    if (entry.head.record_bytes > footer.directory_offset - offset || entry.head.name_bytes > end - name)
      return corrupt_shard("the document reaches into the shard's directory").at(place);
    entry.offset = offset;
    entry.name.assign(reinterpret_cast<const char*>(name), entry.head.name_bytes);
    offset += entry.head.record_bytes;
    name += entry.head.name_bytes;
  }
  if (offset != footer.directory_offset)
    return corrupt_shard("the documents leave a hole before the shard's directory");
  if (end - name >= 8 || !all_zero(name, static_cast<std::uint64_t>(end - name)))
    return corrupt_shard("the shard's directory is longer than its documents");
  return shard;
}

}  // namespace eaglet
