#pragma once

// The draft of docs/math/draft.md written down plainly, on any number type: every row, every step, every
// score; no skipping, no sharing, no chunks. With std::complex<double> a complex step gives exact
// derivatives. For tests only.

#include <cmath>
#include <complex>
#include <map>
#include <string>
#include <vector>

#include "draft/draft_model.h"
#include "ops/loss_row_ref.h"

namespace eaglet::ref {

template <class T>
class Draft {
 public:
  using Row = std::vector<T>;
  std::map<std::string, std::vector<T>> w;  // by parameter name; "embed_tokens.weight" is always there
  DraftConfig c;
  RopeTable rope;
  TttOptions options;
  std::vector<float> verifier_head, verifier_norm;  // [V, Ht], [Ht]
  std::vector<std::int32_t> target_ids;

  /// sum_k weight_k * loss_k / (counted_k + 1e-5)
  T loss(const DraftInputs& in) {
    sums_.assign(static_cast<std::size_t>(options.ttt_steps), T(0));
    std::vector<double> counted(sums_.size(), 0.0);
    for (std::int64_t begin = 0; begin < in.rows;) {
      std::int64_t end = begin + 1;
      while (end < in.rows && in.document_ids[end] == in.document_ids[begin]) ++end;
      if (in.document_ids[begin] >= 0) document(in, begin, end, &counted);
      begin = end;
    }
    T total(0);
    double decay = 1;
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      const double weight = options.step_weights.empty() ? decay : options.step_weights[k];
      total += sums_[k] * (weight / (counted[k] + 1e-5));
      decay *= options.step_decay;
    }
    return total;
  }

 private:
  Row norm(const Row& x, const std::vector<T>& weight, double eps) const {
    T sum(0);
    for (const T& v : x) sum += v * v;
    const T inverse = T(1) / std::sqrt(sum / double(x.size()) + eps);
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inverse * weight[i];
    return y;
  }
  Row product(const std::string& name, const Row& x) const {
    const std::vector<T>& m = w.at(name + ".weight");
    const auto bias = w.find(name + ".bias");
    Row y(m.size() / x.size(), T(0));
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += m[o * x.size() + i] * x[i];
      if (bias != w.end()) y[o] += bias->second[o];
    }
    return y;
  }
  static Row joined(const Row& a, const Row& b) {
    Row both = a;
    both.insert(both.end(), b.begin(), b.end());
    return both;
  }
  static void add(const Row& x, Row* y) {
    for (std::size_t i = 0; i < x.size(); ++i) (*y)[i] += x[i];
  }

  Row fused(const float* aux) const {
    Row g;
    const auto width = static_cast<std::size_t>(c.target_hidden);
    for (std::int64_t a = 0; a < c.num_aux(); ++a) {
      Row part(aux + a * c.target_hidden, aux + (a + 1) * c.target_hidden);
      if (c.fc_norm) part = norm(part, w.at("fc_norm." + std::to_string(a) + ".weight"), c.rms_norm_eps);
      g.insert(g.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(width));
    }
    if (c.norm_before_fc) g = norm(g, w.at("input_norm.weight"), c.rms_norm_eps);
    return product("fc", g);
  }

  Row rotated(const Row& x, std::int64_t heads, std::int64_t position, const std::string& head_norm) const {
    const auto dim = static_cast<std::size_t>(c.head_dim), half = dim / 2;
    Row y(x.size());
    for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
      Row head(x.begin() + static_cast<std::ptrdiff_t>(h * dim),
               x.begin() + static_cast<std::ptrdiff_t>((h + 1) * dim));
      if (c.qk_norm) head = norm(head, w.at(head_norm), c.rms_norm_eps);
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = double(position) * rope.inv_freq[i];
        const double cosine = std::cos(angle) * rope.attention_scaling,
                     sine = std::sin(angle) * rope.attention_scaling;
        y[h * dim + i] = head[i] * cosine - head[i + half] * sine;
        y[h * dim + i + half] = head[i + half] * cosine + head[i] * sine;
      }
    }
    return y;
  }

  struct KeyValue {
    Row k, v;
  };

  // out [N*D] of one query over the given keys.
  Row attention(const Row& q, const std::vector<const KeyValue*>& seen) const {
    const auto dim = static_cast<std::size_t>(c.head_dim);
    const std::int64_t group = c.num_heads / c.num_kv_heads;
    Row out(q.size(), T(0));
    for (std::int64_t h = 0; h < c.num_heads; ++h) {
      const std::size_t at = static_cast<std::size_t>(h) * dim,
                        kv = static_cast<std::size_t>(h / group) * dim;
      std::vector<T> scores;
      for (const KeyValue* key : seen) {
        T s(0);
        for (std::size_t i = 0; i < dim; ++i) s += q[at + i] * key->k[kv + i];
        scores.push_back(s / std::sqrt(double(dim)));
      }
      const std::vector<T> log_p = log_softmax(scores);
      for (std::size_t j = 0; j < seen.size(); ++j)
        for (std::size_t i = 0; i < dim; ++i) out[at + i] += std::exp(log_p[j]) * seen[j]->v[kv + i];
    }
    return out;
  }

  std::vector<double> teacher_logits(const float* last) const {
    Row x(last, last + c.target_hidden);
    std::vector<T> gain(verifier_norm.begin(), verifier_norm.end());
    x = norm(x, gain, c.rms_norm_eps);
    std::vector<double> z;
    for (std::int64_t v = 0; v < c.vocab; ++v) {
      double sum = 0;
      for (std::int64_t i = 0; i < c.target_hidden; ++i)
        sum += real_part(x[static_cast<std::size_t>(i)]) *
               verifier_head[static_cast<std::size_t>(v * c.target_hidden + i)];
      z.push_back(sum);
    }
    return z;
  }

  // The loss of one row against probabilities p that add up to at most 1.
  T row_loss(const std::vector<double>& whole_logits, const Row& z) const {
    std::vector<double> inside;
    for (const std::int32_t id : target_ids) inside.push_back(whole_logits[static_cast<std::size_t>(id)]);
    const bool whole = options.teacher_vocab == TeacherVocab::kWhole;
    const std::vector<double> all = log_softmax(whole_logits);
    std::vector<double> log_p = log_softmax(inside);
    if (whole)
      for (std::size_t i = 0; i < log_p.size(); ++i) log_p[i] = all[static_cast<std::size_t>(target_ids[i])];
    const double best_inside = *std::max_element(inside.begin(), inside.end());
    const bool outside = whole && *std::max_element(whole_logits.begin(), whole_logits.end()) > best_inside;
    T sum(0);
    for (const LossTerm& term : options.losses) {
      if (term.kind == LossKind::kCe && outside) continue;
      sum += term.weight * loss_of_log_p(term.kind, log_p, log_softmax(z));
    }
    return sum;
  }

  struct State {
    std::vector<std::vector<std::vector<KeyValue>>> keys;  // [step][layer][row of the document]
  };

  void document(const DraftInputs& in, std::int64_t begin, std::int64_t end, std::vector<double>* counted) {
    const auto n = static_cast<std::size_t>(end - begin), layers = static_cast<std::size_t>(c.num_layers);
    std::vector<Row> h(n);
    for (std::size_t p = 0; p < n; ++p)
      h[p] = fused(in.aux_hidden_states +
                   (begin + static_cast<std::int64_t>(p)) * c.num_aux() * c.target_hidden);
    State state;
    for (std::size_t k = 0; k < static_cast<std::size_t>(options.ttt_steps); ++k) {
      state.keys.emplace_back(layers, std::vector<KeyValue>(n));
      const std::size_t rows = n > k ? n - k : 0;  // rows whose token p+k lies in the document
      for (std::size_t l = 0; l < layers; ++l) layer(in, begin, k, l, rows, &h, &state);
      for (std::size_t p = 0; p < rows; ++p) {
        const Row normed = norm(h[p], w.at("norm.weight"), c.rms_norm_eps);
        const std::int64_t teacher = begin + static_cast<std::int64_t>(p + k);
        if (in.loss_mask[teacher] != 0) {
          ++(*counted)[k];
          sums_[k] += row_loss(teacher_logits(in.last_hidden_states + teacher * c.target_hidden),
                               product("lm_head", normed));
        }
        if (c.norm_output) h[p] = normed;
      }
    }
  }

  void layer(const DraftInputs& in, std::int64_t begin, std::size_t k, std::size_t l, std::size_t rows,
             std::vector<Row>* h, State* state) const {
    const std::string name = "layers." + std::to_string(l) + ".";
    const std::int64_t window = l < c.sliding_window.size() ? c.sliding_window[l] : 0;
    std::vector<Row> queries(rows), residual(rows);
    for (std::size_t p = 0; p < rows; ++p) {
      const std::int64_t row = begin + static_cast<std::int64_t>(p);
      const std::int64_t position = in.position_ids[row] + static_cast<std::int64_t>(k);
      Row a = norm((*h)[p], w.at(name + (l == 0 ? "hidden_norm.weight" : "input_layernorm.weight")),
                   c.rms_norm_eps);
      residual[p] = l == 0 && c.norm_before_residual ? a : (*h)[p];
      if (l == 0) {
        const std::vector<T>& table = w.at("embed_tokens.weight");
        const auto token =
            static_cast<std::ptrdiff_t>(in.input_ids[row + static_cast<std::int64_t>(k)] * c.hidden);
        const Row e(table.begin() + token, table.begin() + token + c.hidden);
        a = joined(norm(e, w.at(name + "input_layernorm.weight"), c.rms_norm_eps), a);
      }
      queries[p] = rotated(product(name + "self_attn.q_proj", a), c.num_heads, position,
                           name + "self_attn.q_norm.weight");
      state->keys[k][l][p] = {rotated(product(name + "self_attn.k_proj", a), c.num_kv_heads, position,
                                      name + "self_attn.k_norm.weight"),
                              product(name + "self_attn.v_proj", a)};
    }
    for (std::size_t p = 0; p < rows; ++p) {
      std::vector<const KeyValue*> seen;
      for (std::size_t j = 0; j <= p; ++j)
        if (window == 0 || static_cast<std::int64_t>(p - j) < window) seen.push_back(&state->keys[0][l][j]);
      for (std::size_t step = 1; step <= k; ++step) seen.push_back(&state->keys[step][l][p]);
      Row x = residual[p];
      add(product(name + "self_attn.o_proj", attention(queries[p], seen)), &x);
      const Row z = norm(x, w.at(name + "post_attention_layernorm.weight"), c.rms_norm_eps);
      Row gate = product(name + "mlp.gate_proj", z);
      const Row up = product(name + "mlp.up_proj", z);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (T(1) + std::exp(-gate[i])) * up[i];
      add(product(name + "mlp.down_proj", gate), &x);
      (*h)[p] = x;
    }
  }

  std::vector<T> sums_;
};

}  // namespace eaglet::ref
