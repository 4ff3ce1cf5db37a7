#include "target/expert_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/interrupt.h"
#include "device/threads.h"
#include "ops/rms_norm.h"
#include "ops/rows.h"

namespace eaglet {
namespace {

constexpr std::int64_t kBlockRows = 4096;  // of one expert at a time

void scores_of(const ExpertConfig& e, const float* logits, std::vector<float>* scores) {
  const auto n = static_cast<std::size_t>(e.count);
  if (e.sigmoid) {
    for (std::size_t i = 0; i < n; ++i) (*scores)[i] = 1.0f / (1.0f + std::exp(-logits[i]));
    return;
  }
  const float best = *std::max_element(logits, logits + n);
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += (*scores)[i] = std::exp(logits[i] - best);
  for (std::size_t i = 0; i < n; ++i) (*scores)[i] /= sum;
}

// Experts of groups that are not kept may not be chosen: their score becomes 0, as in the library.
void drop_groups(const ExpertConfig& e, std::vector<float>* choice) {
  if (e.groups_kept == e.groups) return;
  const std::int64_t size = e.count / e.groups;
  std::vector<std::pair<float, std::int64_t>> groups;
  for (std::int64_t g = 0; g < e.groups; ++g) {
    std::vector<float> members(choice->begin() + g * size, choice->begin() + (g + 1) * size);
    std::partial_sort(members.begin(), members.begin() + std::min<std::int64_t>(2, size), members.end(),
                      std::greater<>());
    groups.push_back(
        {-std::accumulate(members.begin(), members.begin() + std::min<std::int64_t>(2, size), 0.0f), g});
  }
  std::sort(groups.begin(), groups.end());
  for (std::int64_t i = e.groups_kept; i < e.groups; ++i) {
    const std::int64_t g = groups[static_cast<std::size_t>(i)].second;
    std::fill(choice->begin() + g * size, choice->begin() + (g + 1) * size, 0.0f);
  }
}

void route_row(const ExpertConfig& e, const float* logits, const std::vector<float>& correction,
               std::int32_t* expert, float* weight) {
  std::vector<float> scores(static_cast<std::size_t>(e.count));
  scores_of(e, logits, &scores);
  std::vector<float> choice = scores;
  for (std::size_t i = 0; i < correction.size(); ++i) choice[i] += correction[i];
  drop_groups(e, &choice);
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(
      order.begin(), order.begin() + e.per_token, order.end(), [&](std::int32_t a, std::int32_t b) {
        const float first = choice[static_cast<std::size_t>(a)], second = choice[static_cast<std::size_t>(b)];
        return first > second || (first == second && a < b);
      });
  float sum = 0;
  for (std::int64_t i = 0; i < e.per_token; ++i) {
    expert[i] = order[static_cast<std::size_t>(i)];
    sum += weight[i] = scores[static_cast<std::size_t>(expert[i])];
  }
  const float scale = static_cast<float>(e.scale) / (e.normalised ? sum + 1e-20f : 1.0f);
  for (std::int64_t i = 0; i < e.per_token; ++i) weight[i] *= scale;
}

// Rows of the pass by expert: rows of expert e are [begin[e], begin[e + 1]).
struct RowsByExpert {
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> row;
  std::vector<float> weight;
};

RowsByExpert group_rows(const ExpertConfig& e, std::int64_t n, const Routing& routing) {
  RowsByExpert by;
  by.begin.assign(static_cast<std::size_t>(e.count) + 1, 0);
  for (const std::int32_t expert : routing.expert) ++by.begin[static_cast<std::size_t>(expert) + 1];
  std::partial_sum(by.begin.begin(), by.begin.end(), by.begin.begin());
  by.row.resize(routing.expert.size());
  by.weight.resize(routing.expert.size());
  std::vector<std::int64_t> next(by.begin.begin(), by.begin.end() - 1);
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t i = 0; i < e.per_token; ++i) {
      const auto from = static_cast<std::size_t>(row * e.per_token + i);
      const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(routing.expert[from])]++);
      by.row[at] = static_cast<std::int32_t>(row);
      by.weight[at] = routing.weight[from];
    }
  return by;
}

struct ExpertTensors {
  std::vector<float> gate, up, down;
};
Result<ExpertTensors> read_expert(const TargetConfig& c, std::int64_t layer, std::int64_t expert,
                                  TargetTensors& tensors) {
  const std::string prefix = fmt::format("{}mlp.experts.{}.", layer_prefix(layer), expert);
  ExpertTensors t;
  EAGLET_ASSIGN_OR_RETURN(t.gate, tensors.read(prefix + "gate_proj.weight", {c.experts.width, c.hidden}));
  EAGLET_ASSIGN_OR_RETURN(t.up, tensors.read(prefix + "up_proj.weight", {c.experts.width, c.hidden}));
  EAGLET_ASSIGN_OR_RETURN(t.down, tensors.read(prefix + "down_proj.weight", {c.hidden, c.experts.width}));
  return t;
}

void add_weighted(std::int64_t n, std::int64_t width, const std::int32_t* row, const float* weight,
                  const float* from, float* x) {
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < width; ++j) x[row[i] * width + j] += weight[i] * from[i * width + j];
  });
}

}  // namespace

Routing route(const ExpertConfig& e, std::int64_t n, const float* logits,
              const std::vector<float>& correction) {
  Routing routing;
  routing.expert.resize(static_cast<std::size_t>(n * e.per_token));
  routing.weight.resize(routing.expert.size());
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      route_row(e, logits + row * e.count, correction, routing.expert.data() + row * e.per_token,
                routing.weight.data() + row * e.per_token);
  });
  return routing;
}

Status expert_layer(const TargetConfig& c, std::int64_t layer, const LayerTensors& l, std::int64_t n,
                    TargetTensors& tensors, float* x, float* normed, LayerScratch* s) {
  const ExpertConfig& e = c.experts;
  rms_norm(n, c.hidden, x, c.hidden, l.post_norm.data(), c.rms_norm_eps, normed, c.hidden, room(&s->inv, n));
  float* logits = room(&s->head_parts, n * e.count);
  linear(n, e.count, c.hidden, normed, l.router, {}, false, logits);
  const RowsByExpert by = group_rows(e, n, route(e, n, logits, l.correction));
  for (std::int64_t first = 0; e.shared > 0 && first < n; first += kBlockRows)
    add_mlp({l.shared_gate, l.shared_up, l.shared_down, e.shared * e.width}, std::min(kBlockRows, n - first),
            c.hidden, normed + first * c.hidden, x + first * c.hidden, s);
  for (std::int64_t expert = 0; expert < e.count; ++expert) {
    const std::int64_t begin = by.begin[static_cast<std::size_t>(expert)],
                       end = by.begin[static_cast<std::size_t>(expert) + 1];
    if (begin == end) continue;
    if (interrupted()) return Status(StatusCode::kInterrupted, "stopped by a signal");
    EAGLET_ASSIGN_OR_RETURN(const ExpertTensors t, read_expert(c, layer, expert, tensors));
    for (std::int64_t first = begin; first < end; first += kBlockRows) {
      const std::int64_t rows = std::min(kBlockRows, end - first);
      float *z = room(&s->normed, rows * c.hidden), *y = room(&s->attended, rows * c.hidden);
      gather_rows(rows, c.hidden, normed, by.row.data() + first, z);
      zero_rows(rows, c.hidden, y);
      add_mlp({t.gate, t.up, t.down, e.width}, rows, c.hidden, z, y, s);
      add_weighted(rows, c.hidden, by.row.data() + first, by.weight.data() + first, y, x);
    }
  }
  return {};
}

}  // namespace eaglet
