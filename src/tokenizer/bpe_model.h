#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "formats/tokenizer_file.h"

namespace eaglet {

/// Byte pair encoding: a piece begins as its smallest symbols, then the pair that stands first in the list of
/// merges becomes one symbol, the leftmost of equal ones, until no pair of the list is left.
class BpeModel {
 public:
  /// The "model" of a tokenizer.json. `byte_level`: pieces come as bytes, the vocabulary has their
  /// characters. kConfig: another kind of model, or a setting that is not supported, by name; kDataLoss: a
  /// merge of, or into, what is no token.
  static Result<BpeModel> from_file(const TokenizerFile& file, bool byte_level);
  /// A tiktoken vocabulary: bytes by rank; two symbols merge when the vocabulary has them as one, the lower
  /// rank first.
  static Result<BpeModel> from_ranks(const std::vector<std::string>& tokens);

  /// Appends the ids of a piece. Pieces come again and again: those already seen are kept (not thread-safe).
  void encode(std::string_view piece, std::vector<std::int32_t>* ids) const;

  /// Id of a token as it is written in the vocabulary (bytes, where the model is byte-level); -1: none.
  std::int32_t id_of(std::string_view token) const;

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::int32_t id = -1;
  };
  /// (left id, right id) -> merge, open addressing: asked for each neighbouring pair of each piece.
  class MergeTable {
   public:
    void reserve(std::size_t merges);
    void put(std::int32_t left, std::int32_t right, Merge merge);
    const Merge* find(std::int32_t left, std::int32_t right) const;

   private:
    std::size_t slot_of(std::uint64_t key) const;
    struct Slot {
      std::uint64_t key = kFree;
      Merge merge;
    };
    static constexpr std::uint64_t kFree = ~std::uint64_t{0};
    std::vector<Slot> slots_;
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  template <class Value>
  using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;
  struct MergeSymbol {
    std::int32_t id;
    std::int32_t before, behind;  // neighbours, -1: none
    bool gone;
  };

  Status read_settings(const Json& model, bool byte_level);
  Status read_merges(const TokenizerFile& file);
  std::int32_t id_of_written(const std::string& token) const;
  void first_symbols(std::string_view piece, std::vector<std::int32_t>* ids) const;
  void merge_all(std::vector<std::int32_t>* ids) const;

  TextMap<std::int32_t> vocab_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_ = {};  // of one-byte tokens, or of <0x..>; -1: none
  bool byte_level_ = false, byte_fallback_ = false, ignore_merges_ = false, fuse_unknown_ = false;
  std::int32_t unknown_id_ = -1;
  mutable TextMap<std::vector<std::int32_t>> seen_;
};

}  // namespace eaglet
