#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "vocab/draft_vocab.h"

namespace eaglet {

/// A draft vocabulary with where it comes from (docs/formats/vocab.md).
struct VocabMap {
  DraftVocab vocab;
  std::string tokenizer_hash;  // of the target's tokenizer; empty in other tools' files
  std::string counts_hash;     // of the counts it was chosen by; empty in other tools' files
  bool ascending = true;       // as stored
  std::string layout;          // "eaglet", "speculators", ...
};

/// Ours (.safetensors), speculators' folder (d2t.npy, t2d.npy), SpecForge's and EAGLE's {d2t, t2d} (.pt), and
/// lists of target ids (.pt: SGLang's hot tokens, NeMo). A bare list of numbers may be offsets or target ids:
/// kConfig when both readings are possible and `bare` does not say which. kDataLoss for maps that cannot be.
enum class BareList { kUnknown, kIds, kOffsets };
Result<VocabMap> read_vocab_map(const std::string& path, std::int64_t target_vocab,
                                BareList bare = BareList::kUnknown);

enum class VocabLayout { kEaglet, kSpeculators, kSpecForge, kSglang };
/// kEaglet: one .safetensors; kSpeculators: a folder with d2t.npy, t2d.npy and, when counts are given,
/// token_freq.pt; kSpecForge: vocab_mapping.pt; kSglang: a .pt list of target ids.
Status write_vocab_map(const VocabMap& map, VocabLayout layout, const std::vector<std::int64_t>& counts,
                       const std::string& path);

/// Why a map must not be used for this tokenizer and these counts; empty when it may. Without a hash in the
/// map only sizes can be compared.
std::string stale_reason(const VocabMap& map, std::int64_t target_vocab, std::int64_t draft_vocab,
                         const std::string& tokenizer_hash, const std::string& counts_hash);
std::string hash_counts(const std::vector<std::int64_t>& counts);

/// How often each target id is supervised: speculators' token_freq.pt (ids to counts), or JSON {"counts":
/// {"id": n}, "target_vocab_size": V}. `target_vocab` may be 0 when the file tells it.
Result<std::vector<std::int64_t>> read_token_counts(const std::string& path, std::int64_t target_vocab);

}  // namespace eaglet
