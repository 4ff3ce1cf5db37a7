#include "apps/bench_shapes.h"

namespace eaglet::apps {
namespace {

DraftConfig llama_like(std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t intermediate, std::int64_t vocab, std::int64_t draft_vocab) {
  DraftConfig c;
  c.hidden = c.target_hidden = hidden;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = 64;
  c.intermediate = intermediate;
  c.vocab = vocab;
  c.draft_vocab = draft_vocab;
  c.aux_layers = {2, 15, 27};
  c.rms_norm_eps = 1e-5;
  c.rope.theta = 100000;
  c.max_position_embeddings = 8192;
  c.sliding_window = {0};
  return c;
}

// The reference run: a 1T-parameter mixture of experts of width 7168 (divided by `divisor`). The tables of
// the target that no row reads are left out: config.vocab is the draft's vocabulary.
DraftConfig kimi_like(std::int64_t divisor) {
  DraftConfig c = llama_like(7168 / divisor, 64 / divisor, 64 / divisor, 18432 / divisor, 32000 / divisor,
                             32000 / divisor);
  c.head_dim = 128;
  c.aux_layers = {3, 31, 59};
  return c;
}

DraftConfig llama_8b() {
  DraftConfig c = llama_like(4096, 32, 8, 14336, 128256, 32000);
  c.head_dim = 128;
  return c;
}

DraftConfig narrow() {
  DraftConfig c = llama_like(64, 2, 2, 128, 2048, 1024);
  c.head_dim = 32;
  c.max_position_embeddings = 1 << 20;
  return c;
}

}  // namespace

const std::vector<BenchShape>& bench_shapes() {
  static const std::vector<BenchShape> shapes = {
      {"smollm2", "SmolLM2-135M's draft, first 40 % of each document unsupervised",
       llama_like(576, 9, 3, 1536, 49152, 16384), 2048, 4, 3, 0.4, false},
      {"smollm2-all", "the same, every row supervised", llama_like(576, 9, 3, 1536, 49152, 16384), 2048, 4, 3,
       0.0, false},
      {"deep", "smollm2 with 16 drafting steps", llama_like(576, 9, 3, 1536, 49152, 16384), 2048, 4, 16, 0.4,
       false},
      {"llama1b", "a 1B Llama's draft", llama_like(2048, 32, 8, 8192, 128256, 32000), 1024, 4, 3, 0.4, false},
      {"llama8b", "an 8B Llama's draft", llama_8b(), 2048, 4, 3, 0.4, false},
      {"narrow", "width 64, one document: for very long ones (--max-seq-len 131072)", narrow(), 8192, 1, 3,
       0.4, false},
      {"kimi", "the reference draft: width 7168, 1.19 B trainable parameters, 256 rows", kimi_like(1), 256, 1,
       3, 0.4, true, true},
      {"reference", "the reference draft, batches of 8192 rows, all supervised: for a device", kimi_like(1),
       8192, 4, 3, 0.0, true, true},
      {"kimi-half", "kimi with every width halved", kimi_like(2), 256, 1, 3, 0.4, true, true},
  };
  return shapes;
}

}  // namespace eaglet::apps
