#include "draft/resident_draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/linear_weight.h"
#include "device/threads.h"
#include "draft/draft_core.h"
#include "ops/bias.h"
#include "ops/joined_rows.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/swiglu.h"

namespace eaglet {
namespace {

using draft_core::AllWeights;
using draft_core::LayerWeights;

constexpr std::int64_t kFewRows = 16;  // products are filled up to a multiple

std::int64_t filled_up(std::int64_t rows) {
  return (rows + kFewRows - 1) / kFewRows * kFewRows;
}

/// Weights of one input multiply in one product, the rows of one below those of the other; layer 0's read
/// [embedding | state].
struct Products {
  std::unique_ptr<LinearWeight> qkv, o, gate_up, down;
};

/// The rows of a step that belong to one sequence.
struct SequenceRows {
  HeadCache* cache = nullptr;
  std::int64_t first_row = 0, rows = 0;
  std::int64_t known = 0;  // rows of the cache after begin(): a window counts from the last of them
};

}  // namespace

struct ResidentDraft::Impl {
  Impl(DraftWeights given, ComputeType compute_type) : draft(std::move(given)), type(compute_type) {}

  DraftWeights draft;
  ComputeType type;
  const float* embeddings = nullptr;
  AllWeights weights;
  RopeTable rope;
  ProductWorkspace workspace;
  std::unique_ptr<LinearWeight> fc, head;
  std::vector<Products> layers;

  std::vector<SequenceRows> all;       // of begin()
  std::vector<std::int64_t> live_row;  // [all] where `carried` has the sequence's state; -1: none any more
  std::vector<SequenceRows> step;      // of the step under way
  std::vector<std::int32_t> tokens, positions;
  std::vector<float> x, carried, joined_in, normed, inv, embedded, aux, qkv, q, k, v, attended, cos, sin,
      gate_up, gate, up, last, logits, scratch;

  std::int64_t window(std::size_t layer) const {
    return draft.config.sliding_window.empty() ? 0 : draft.config.sliding_window[layer];
  }
  std::int64_t q_width() const { return draft.config.num_heads * draft.config.head_dim; }
  std::int64_t kv_width() const { return draft.config.num_kv_heads * draft.config.head_dim; }

  std::unique_ptr<LinearWeight> product(std::int64_t out, std::int64_t in, const float* w) {
    LinearWeightOptions options;
    options.type = type;
    options.pack_f32 = true;
    options.with_backward = false;
    options.row_step = kFewRows;
    auto made = std::make_unique<LinearWeight>(out, in, in, options, &workspace);
    made->load(w);
    return made;
  }
  void make_products();
  std::int64_t lay_out(const std::vector<SequenceRows>& sequences);
  void run(std::int64_t rows);
  void layer_forward(std::size_t layer, std::int64_t rows);
  void norm_layer_input(std::size_t layer, std::int64_t rows);
  void project(std::size_t layer, std::int64_t rows);
  void attend(std::size_t layer, std::int64_t rows);
  void attend_one(const SequenceRows& s, std::size_t layer, std::int64_t kv_head, float* own_scratch);
  void mlp(std::size_t layer, std::int64_t rows);
  void fuse(const std::vector<DraftRows>& sequences, std::int64_t rows);
  void finish();
};

void ResidentDraft::Impl::make_products() {
  const DraftConfig& c = draft.config;
  weights = draft_core::point_into(c, draft.table, draft.values.data(),
                                   static_cast<std::int64_t>(draft.values.size()));
  rope = rope_table(c.rope, c.head_dim, c.max_position_embeddings);
  fc = product(c.hidden, c.num_aux() * c.target_hidden, weights.fc);
  head = product(c.draft_vocab, c.hidden, weights.lm_head);
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    const LayerWeights& w = weights.layers[l];
    const std::int64_t in = l == 0 ? 2 * c.hidden : c.hidden;
    std::vector<float> joined(w.q, w.q + q_width() * in);
    joined.insert(joined.end(), w.k, w.k + kv_width() * in);
    joined.insert(joined.end(), w.v, w.v + kv_width() * in);
    Products p;
    p.qkv = product(q_width() + 2 * kv_width(), in, joined.data());
    p.o = product(c.hidden, q_width(), w.o);
    joined.assign(w.gate, w.gate + c.intermediate * c.hidden);
    joined.insert(joined.end(), w.up, w.up + c.intermediate * c.hidden);
    p.gate_up = product(2 * c.intermediate, c.hidden, joined.data());
    p.down = product(c.hidden, c.intermediate, w.down);
    layers.push_back(std::move(p));
  }
}

// Positions as training counts them: row p's is p + 1. Returns the rows, filled up.
std::int64_t ResidentDraft::Impl::lay_out(const std::vector<SequenceRows>& sequences) {
  step = sequences;
  positions.clear();
  std::int64_t rows = 0;
  for (SequenceRows& s : step) {
    s.first_row = rows;
    rows += s.rows;
    for (std::int64_t r = 0; r < s.rows; ++r)
      positions.push_back(static_cast<std::int32_t>(s.cache->length() + r + 1));
  }
  const std::int64_t filled = filled_up(rows);
  positions.resize(static_cast<std::size_t>(filled));
  tokens.resize(static_cast<std::size_t>(filled));  // those that fill up: token 0, or what was there
  return filled;
}

// x [rows, H] = fc(captured states), as fuse_aux_states() of training.
void ResidentDraft::Impl::fuse(const std::vector<DraftRows>& sequences, std::int64_t rows) {
  const DraftConfig& c = draft.config;
  const std::int64_t width = c.num_aux() * c.target_hidden;
  float* states = room(&aux, rows * width);
  float* to = states;
  for (const DraftRows& s : sequences)
    to = std::copy_n(s.aux, static_cast<std::int64_t>(s.tokens.size()) * width, to);
  std::fill(to, states + rows * width, 0.0f);
  room(&inv, rows);
  if (c.norm_before_fc)
    rms_norm(rows, width, states, width, weights.input_norm, c.rms_norm_eps, states, width, inv.data());
  for (std::int64_t i = 0; c.fc_norm && i < c.num_aux(); ++i) {
    float* part = states + i * c.target_hidden;
    rms_norm(rows, c.target_hidden, part, width, weights.fc_norm[static_cast<std::size_t>(i)], c.rms_norm_eps,
             part, width, inv.data());
  }
  fc->forward(rows, states, false, room(&x, rows * c.hidden));
}

// joined_in: what q, k and v read; normed: the state alone.
void ResidentDraft::Impl::norm_layer_input(std::size_t layer, std::int64_t rows) {
  const DraftConfig& c = draft.config;
  room(&inv, rows);
  rms_norm(rows, c.hidden, x.data(), c.hidden, weights.layers[layer].state_norm, c.rms_norm_eps,
           room(&normed, rows * c.hidden), c.hidden, inv.data());
  if (layer > 0) return;
  gather_rows(rows, c.hidden, embeddings, tokens.data(), room(&embedded, rows * c.hidden));
  float* in = room(&joined_in, rows * 2 * c.hidden);
  rms_norm(rows, c.hidden, embedded.data(), c.hidden, weights.embed_norm, c.rms_norm_eps, in, 2 * c.hidden,
           inv.data());
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(normed.data() + row * c.hidden, c.hidden, in + (2 * row + 1) * c.hidden);
}

void ResidentDraft::Impl::project(std::size_t layer, std::int64_t rows) {
  const DraftConfig& c = draft.config;
  const LayerWeights& w = weights.layers[layer];
  const std::int64_t all_width = q_width() + 2 * kv_width(), half = c.head_dim / 2;
  float* out = room(&qkv, rows * all_width);
  layers[layer].qkv->forward(rows, layer == 0 ? joined_in.data() : normed.data(), false, out);
  take_joined(rows, q_width(), all_width, out, w.q_bias, room(&q, rows * q_width()));
  take_joined(rows, kv_width(), all_width, out + q_width(), w.k_bias, room(&k, rows * kv_width()));
  take_joined(rows, kv_width(), all_width, out + q_width() + kv_width(), w.v_bias,
              room(&v, rows * kv_width()));
  const auto norm_heads = [&](std::int64_t heads, const float* weight, float* y) {
    rms_norm(rows * heads, c.head_dim, y, c.head_dim, weight, c.rms_norm_eps, y, c.head_dim,
             room(&inv, rows * heads));
  };
  if (c.qk_norm) {
    norm_heads(c.num_heads, w.q_norm, q.data());
    norm_heads(c.num_kv_heads, w.k_norm, k.data());
  }
  rope_rotate(rows, c.num_heads, half, cos.data(), sin.data(), q.data());
  rope_rotate(rows, c.num_kv_heads, half, cos.data(), sin.data(), k.data());
}

// A drafted row sees the known rows as its sequence's last known row does, and all drafted ones: what
// training's row sees at its own steps.
void ResidentDraft::Impl::attend_one(const SequenceRows& s, std::size_t layer, std::int64_t kv_head,
                                     float* own_scratch) {
  const DraftConfig& c = draft.config;
  const CachedHead cached = s.cache->head(static_cast<std::int64_t>(layer), kv_head);
  const std::int64_t group = c.num_heads / c.num_kv_heads, past = s.cache->length(), width = window(layer);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const std::int64_t row = s.first_row + r, from = row * kv_width() + kv_head * c.head_dim;
    store_cached_row(cached, past + r, k.data() + from, v.data() + from);
    const std::int64_t known = std::min(past + r + 1, s.known);
    const std::int64_t begin = width > 0 ? std::max<std::int64_t>(0, known - width) : 0;
    const std::int64_t at = row * q_width() + kv_head * group * c.head_dim;
    cached_attention(cached, group, begin, past + r + 1, q.data() + at, attended.data() + at, own_scratch);
  }
}

void ResidentDraft::Impl::attend(std::size_t layer, std::int64_t rows) {
  const DraftConfig& c = draft.config;
  std::int64_t longest = 0;
  for (const SequenceRows& s : step) longest = std::max(longest, s.cache->length() + s.rows);
  const std::int64_t floats =
      cached_attention_scratch_floats(c.head_dim, c.num_heads / c.num_kv_heads, longest);
  room(&scratch, num_threads() * floats);
  room(&attended, rows * q_width());
  std::fill_n(attended.data(), rows * q_width(), 0.0f);  // those that fill up
  parallel_items(static_cast<std::int64_t>(step.size()) * c.num_kv_heads, [&](std::int64_t i, int thread) {
    attend_one(step[static_cast<std::size_t>(i / c.num_kv_heads)], layer, i % c.num_kv_heads,
               scratch.data() + thread * floats);
  });
}

void ResidentDraft::Impl::mlp(std::size_t layer, std::int64_t rows) {
  const DraftConfig& c = draft.config;
  const LayerWeights& w = weights.layers[layer];
  rms_norm(rows, c.hidden, x.data(), c.hidden, w.post_norm, c.rms_norm_eps, normed.data(), c.hidden,
           inv.data());
  float* both = room(&gate_up, rows * 2 * c.intermediate);
  layers[layer].gate_up->forward(rows, normed.data(), false, both);
  float* opened = room(&gate, rows * c.intermediate);
  take_joined(rows, c.intermediate, 2 * c.intermediate, both, w.gate_bias, opened);
  take_joined(rows, c.intermediate, 2 * c.intermediate, both + c.intermediate, w.up_bias,
              room(&up, rows * c.intermediate));
  swiglu(rows, c.intermediate, opened, up.data(), opened);
  layers[layer].down->forward(rows, opened, true, x.data());
  add_bias(rows, c.hidden, w.down_bias, x.data());
}

void ResidentDraft::Impl::layer_forward(std::size_t layer, std::int64_t rows) {
  const DraftConfig& c = draft.config;
  norm_layer_input(layer, rows);
  project(layer, rows);
  attend(layer, rows);
  if (c.norm_before_residual && layer == 0) std::copy_n(normed.data(), rows * c.hidden, x.data());
  layers[layer].o->forward(rows, attended.data(), true, x.data());
  add_bias(rows, c.hidden, weights.layers[layer].o_bias, x.data());
  mlp(layer, rows);
}

// All layers over x, then the head over each sequence's last row.
void ResidentDraft::Impl::run(std::int64_t rows) {
  const std::int64_t half = draft.config.head_dim / 2;
  rope_angles(rows, positions.data(), half, rope.inv_freq.data(), rope.attention_scaling,
              room(&cos, rows * half), room(&sin, rows * half));
  for (std::size_t l = 0; l < layers.size(); ++l) layer_forward(l, rows);
  for (const SequenceRows& s : step) s.cache->advance(s.rows);
  finish();
}

void ResidentDraft::Impl::finish() {
  const DraftConfig& c = draft.config;
  const auto count = static_cast<std::int64_t>(step.size());
  const std::int64_t filled = filled_up(count);
  float* states = room(&carried, filled * c.hidden);
  for (std::int64_t i = 0; i < count; ++i) {
    const SequenceRows& s = step[static_cast<std::size_t>(i)];
    std::copy_n(x.data() + (s.first_row + s.rows - 1) * c.hidden, c.hidden, states + i * c.hidden);
  }
  std::fill(states + count * c.hidden, states + filled * c.hidden, 0.0f);
  float* final_states = room(&last, filled * c.hidden);
  rms_norm(filled, c.hidden, states, c.hidden, weights.norm, c.rms_norm_eps, final_states, c.hidden,
           room(&inv, filled));
  if (c.norm_output) std::copy_n(final_states, count * c.hidden, states);
  head->forward(filled, final_states, false, room(&logits, filled * c.draft_vocab));
}

ResidentDraft::ResidentDraft(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResidentDraft::~ResidentDraft() = default;

Result<std::unique_ptr<ResidentDraft>> ResidentDraft::make(DraftWeights draft,
                                                           const std::vector<float>& target_embeddings,
                                                           ComputeType type) {
  auto impl = std::make_unique<Impl>(std::move(draft), type);
  const DraftConfig& c = impl->draft.config;
  impl->embeddings = impl->draft.own_embeddings();
  if (impl->embeddings == nullptr) {
    if (static_cast<std::int64_t>(target_embeddings.size()) != c.vocab * c.hidden)
      return Status(StatusCode::kConfig,
                    fmt::format("the draft has no embeddings and needs {} x {}, the target's are {} numbers",
                                c.vocab, c.hidden, target_embeddings.size()),
                    "", "give a draft of this target");
    impl->embeddings = target_embeddings.data();
  }
  impl->make_products();
  return std::unique_ptr<ResidentDraft>(new ResidentDraft(std::move(impl)));
}

const DraftConfig& ResidentDraft::config() const {
  return impl_->draft.config;
}
const DraftVocab& ResidentDraft::vocab() const {
  return impl_->draft.vocab;
}
float* ResidentDraft::logits(std::int64_t i) {
  return impl_->logits.data() + i * impl_->draft.config.draft_vocab;
}

std::uint64_t ResidentDraft::bytes() const {
  std::uint64_t sum = 4 * impl_->draft.values.size() + impl_->fc->bytes() + impl_->head->bytes();
  for (const Products& p : impl_->layers)
    sum += p.qkv->bytes() + p.o->bytes() + p.gate_up->bytes() + p.down->bytes();
  return sum;
}

HeadCacheShape ResidentDraft::cache_shape() const {
  const DraftConfig& c = impl_->draft.config;
  return {c.num_layers, c.num_kv_heads, c.head_dim, impl_->type == ComputeType::kBf16};
}

void ResidentDraft::begin(const std::vector<DraftRows>& sequences) {
  Impl& d = *impl_;
  d.all.clear();
  d.live_row.clear();
  for (const DraftRows& s : sequences) {
    const auto rows = static_cast<std::int64_t>(s.tokens.size());
    d.live_row.push_back(static_cast<std::int64_t>(d.all.size()));
    d.all.push_back({s.cache, 0, rows, s.cache->length() + rows});
  }
  const std::int64_t rows = d.lay_out(d.all);
  auto token = d.tokens.begin();
  for (const DraftRows& s : sequences) token = std::copy(s.tokens.begin(), s.tokens.end(), token);
  std::fill(token, d.tokens.end(), 0);
  d.fuse(sequences, rows);
  d.run(rows);
}

void ResidentDraft::next(const std::vector<std::int32_t>& which, const std::vector<std::int32_t>& tokens) {
  Impl& d = *impl_;
  const std::int64_t width = d.draft.config.hidden;
  std::vector<SequenceRows> going;
  for (const std::int32_t i : which) {
    SequenceRows s = d.all[static_cast<std::size_t>(i)];
    s.rows = 1;
    going.push_back(s);
  }
  const std::int64_t rows = d.lay_out(going);
  std::fill(std::copy(tokens.begin(), tokens.end(), d.tokens.begin()), d.tokens.end(), 0);
  float* x = room(&d.x, rows * width);
  std::fill_n(x, rows * width, 0.0f);
  for (std::size_t i = 0; i < which.size(); ++i) {
    std::int64_t& at = d.live_row[static_cast<std::size_t>(which[i])];
    std::copy_n(d.carried.data() + at * width, width, x + static_cast<std::int64_t>(i) * width);
  }
  std::fill(d.live_row.begin(), d.live_row.end(), -1);
  for (std::size_t i = 0; i < which.size(); ++i)
    d.live_row[static_cast<std::size_t>(which[i])] = static_cast<std::int64_t>(i);
  d.run(rows);
}

}  // namespace eaglet
