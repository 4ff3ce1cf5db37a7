#include "tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "formats/byte_alphabet.h"
#include "formats/json_field.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

constexpr std::size_t kMostSeen = 1 << 16, kLongestSeen = 64;

Status bad_merge(std::size_t number, const std::string& token) {
  return Status(StatusCode::kDataLoss,
                fmt::format("merge {} of the tokenizer needs the token \"{}\", which the vocabulary has not",
                            number + 1, token));
}

bool is_true(const Json& json, const char* name) {
  const Json* value = json_field(json, name);
  return value != nullptr && *value == Json(true);
}

}  // namespace

void BpeModel::MergeTable::reserve(std::size_t merges) {
  std::size_t slots = 16;
  while (slots < 2 * merges) slots *= 2;
  slots_.assign(slots, {});
}

std::size_t BpeModel::MergeTable::slot_of(std::uint64_t key) const {
  std::size_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & (slots_.size() - 1);
  while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void BpeModel::MergeTable::put(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key =
      std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  Slot& slot = slots_[slot_of(key)];
  slot = {key, merge};
}

const BpeModel::Merge* BpeModel::MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key =
      std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == kFree ? nullptr : &slot.merge;
}

Status BpeModel::read_settings(const Json& model, bool byte_level) {
  const Json* type = json_field(model, "type");
  if (type != nullptr && *type != Json("BPE"))
    return Status(StatusCode::kConfig, "a tokenizer of kind " + json_shown(*type) + " is not supported", {},
                  "only BPE is; or use the model's GGUF");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json* value = json_field(model, name); value != nullptr && *value != Json(""))
      return Status(StatusCode::kConfig, fmt::format("the tokenizer's {} is not supported", name), {},
                    "use the model's GGUF");
  if (const Json* dropout = json_field(model, "dropout");
      dropout != nullptr && dropout->is_number() && dropout->get<double>() != 0)
    return Status(StatusCode::kConfig,
                  "the tokenizer's dropout is not supported: it gives other ids each time");
  byte_level_ = byte_level;
  byte_fallback_ = is_true(model, "byte_fallback");
  ignore_merges_ = is_true(model, "ignore_merges");
  fuse_unknown_ = is_true(model, "fuse_unk");
  return {};
}

Result<BpeModel> BpeModel::from_file(const TokenizerFile& file, bool byte_level) {
  BpeModel bpe;
  const Json* model = json_field(file.rest, "model");
  if (model == nullptr) return Status(StatusCode::kDataLoss, "the tokenizer has no model");
  EAGLET_RETURN_IF_ERROR(bpe.read_settings(*model, byte_level));
  if (file.vocab.empty()) return Status(StatusCode::kDataLoss, "the tokenizer's vocabulary is empty");
  bpe.vocab_.reserve(file.vocab.size());
  for (const auto& [text, id] : file.vocab) {
    if (!byte_level) {
      bpe.vocab_.insert_or_assign(text, id);
    } else if (const auto bytes = bytes_of_characters(text)) {
      bpe.vocab_.insert_or_assign(*bytes, id);  // the rest is no text: control tokens
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    bpe.byte_ids_[byte] = byte_level ? bpe.id_of(std::string(1, static_cast<char>(byte)))
                                     : bpe.id_of(fmt::format("<0x{:02X}>", byte));
  if (byte_level && bpe.byte_fallback_ &&
      std::find(bpe.byte_ids_.begin(), bpe.byte_ids_.end(), -1) != bpe.byte_ids_.end())
    return Status(StatusCode::kConfig,
                  "the tokenizer's byte_fallback is not supported where a byte-level vocabulary lacks bytes");
  if (const Json* unknown = json_field(*model, "unk_token"); unknown != nullptr && unknown->is_string()) {
    bpe.unknown_id_ = bpe.id_of_written(unknown->get<std::string>());
    for (const AddedToken& added : file.added)
      if (bpe.unknown_id_ < 0 && added.text == unknown->get<std::string>()) bpe.unknown_id_ = added.id;
  }
  EAGLET_RETURN_IF_ERROR(bpe.read_merges(file));
  return bpe;
}

std::int32_t BpeModel::id_of(std::string_view token) const {
  const auto found = vocab_.find(token);
  return found == vocab_.end() ? -1 : found->second;
}

std::int32_t BpeModel::id_of_written(const std::string& token) const {
  if (!byte_level_) return id_of(token);
  const auto bytes = bytes_of_characters(token);
  return bytes ? id_of(*bytes) : -1;
}

Status BpeModel::read_merges(const TokenizerFile& file) {
  merges_.reserve(file.merges.size());
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    const std::int32_t a = id_of_written(left), b = id_of_written(right), both = id_of_written(left + right);
    if (a < 0) return bad_merge(rank, left);
    if (b < 0) return bad_merge(rank, right);
    if (both < 0) return bad_merge(rank, left + right);
    merges_.put(a, b, {static_cast<std::uint32_t>(rank), both});
  }
  return {};
}

Result<BpeModel> BpeModel::from_ranks(const std::vector<std::string>& tokens) {
  BpeModel bpe;
  bpe.byte_level_ = bpe.ignore_merges_ = true;
  bpe.vocab_.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id)
    bpe.vocab_.emplace(tokens[id], static_cast<std::int32_t>(id));
  if (bpe.vocab_.size() != tokens.size())
    return Status(StatusCode::kDataLoss, "the tiktoken file has a token twice");
  std::size_t merges = 0;
  const auto each_merge = [&](const auto& take) {
    for (std::size_t id = 0; id < tokens.size(); ++id)
      for (std::size_t cut = 1; cut < tokens[id].size(); ++cut) {
        const std::string_view token = tokens[id];
        const std::int32_t left = bpe.id_of(token.substr(0, cut));
        const std::int32_t right = left < 0 ? -1 : bpe.id_of(token.substr(cut));
        if (right >= 0) take(left, right, static_cast<std::int32_t>(id));
      }
  };
  each_merge([&](std::int32_t, std::int32_t, std::int32_t) { ++merges; });
  bpe.merges_.reserve(merges);
  each_merge([&](std::int32_t left, std::int32_t right, std::int32_t id) {
    bpe.merges_.put(left, right, {static_cast<std::uint32_t>(id), id});
  });
  for (unsigned byte = 0; byte < 256; ++byte) {
    bpe.byte_ids_[byte] = bpe.id_of(std::string(1, static_cast<char>(byte)));
    if (bpe.byte_ids_[byte] < 0)
      return Status(StatusCode::kDataLoss,
                    fmt::format("the tiktoken file has no token for the byte {}", byte));
  }
  return bpe;
}

void BpeModel::encode(std::string_view piece, std::vector<std::int32_t>* ids) const {
  if (piece.empty()) return;
  const auto seen = seen_.find(piece);
  if (seen != seen_.end()) {
    ids->insert(ids->end(), seen->second.begin(), seen->second.end());
    return;
  }
  std::vector<std::int32_t> own;
  const std::int32_t whole = ignore_merges_ ? id_of(piece) : -1;
  if (whole >= 0) {
    own.push_back(whole);
  } else {
    first_symbols(piece, &own);
    merge_all(&own);
  }
  ids->insert(ids->end(), own.begin(), own.end());
  if (piece.size() > kLongestSeen) return;
  if (seen_.size() >= kMostSeen) seen_.clear();
  seen_.emplace(piece, std::move(own));
}

/// What the vocabulary has not becomes its bytes' tokens where there are such, else the unknown token, else
/// nothing: all as in the reference, with its order of an unknown token before bytes.
void BpeModel::first_symbols(std::string_view piece, std::vector<std::int32_t>* ids) const {
  bool unknown = false;
  const auto flush = [&] {
    if (unknown) ids->push_back(unknown_id_);
    unknown = false;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t bytes = byte_level_ ? 1 : utf8_at(piece, at).bytes;
    const std::string_view symbol = piece.substr(at, bytes);
    at += bytes;
    const std::int32_t id = byte_level_ ? byte_ids_[static_cast<unsigned char>(symbol[0])] : id_of(symbol);
    if (id >= 0) {
      flush();
      ids->push_back(id);
      continue;
    }
    const auto has_token = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
    if (byte_fallback_ && !byte_level_ && std::all_of(symbol.begin(), symbol.end(), has_token)) {
      for (const char c : symbol) ids->push_back(byte_ids_[static_cast<unsigned char>(c)]);
      continue;
    }
    if (unknown_id_ < 0) continue;
    if (!fuse_unknown_) flush();
    unknown = true;
  }
  flush();
}

void BpeModel::merge_all(std::vector<std::int32_t>* ids) const {
  struct Candidate {
    std::uint32_t rank;
    std::int32_t place, id;
    bool operator<(const Candidate& other) const {  // a queue gives its largest first
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  const auto count = static_cast<std::int32_t>(ids->size());
  std::vector<MergeSymbol> symbols;
  symbols.reserve(ids->size());
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({(*ids)[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, false});
  const auto at = [&symbols](std::int32_t i) -> MergeSymbol& { return symbols[static_cast<std::size_t>(i)]; };
  std::vector<Candidate> storage;
  storage.reserve(ids->size());
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(storage));
  const auto consider = [&](std::int32_t left) {
    if (left < 0 || at(left).behind < 0) return;
    if (const Merge* merge = merges_.find(at(left).id, at(at(left).behind).id))
      queue.push({merge->rank, left, merge->id});
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    MergeSymbol& left = at(top.place);
    if (left.gone || left.behind < 0) continue;
    MergeSymbol& right = at(left.behind);
    const Merge* merge = merges_.find(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;  // a neighbour has changed meanwhile
    left.id = top.id;
    left.behind = right.behind;
    right.gone = true;
    if (left.behind >= 0) at(left.behind).before = top.place;
    consider(left.before);
    consider(top.place);
  }
  ids->clear();
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = at(i).behind) ids->push_back(at(i).id);
}

}  // namespace eaglet
