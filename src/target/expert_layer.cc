#include "target/expert_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <future>
#include <numeric>

#include "base/clock.h"
#include "base/interrupt.h"
#include "device/threads.h"
#include "ops/joined_rows.h"
#include "ops/rms_norm.h"
#include "ops/rows.h"

namespace eaglet {
namespace {

constexpr std::int64_t kBlockRows = 256;  // of one expert for one thread

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

void add_weighted(std::int64_t n, std::int64_t width, const std::int32_t* row, const float* weight,
                  const float* from, float* x) {
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < width; ++j) x[row[i] * width + j] += weight[i] * from[i * width + j];
  });
}

// Calls body(first, rows, scratch) for blocks of [begin, end), each on a thread.
template <class Body>
void in_blocks(std::int64_t begin, std::int64_t end, std::vector<LayerScratch>* scratch, const Body& body) {
  parallel_items((end - begin + kBlockRows - 1) / kBlockRows, [&](std::int64_t block, int thread) {
    const std::int64_t first = begin + block * kBlockRows;
    body(first, std::min(kBlockRows, end - first), &(*scratch)[static_cast<std::size_t>(thread)]);
  });
}

RowsByExpert choose_experts(const ExpertConfig& e, std::int64_t hidden, const LayerTensors& l,
                            const LinearWeight& router, std::int64_t n, const float* normed,
                            std::vector<LayerScratch>* scratch) {
  Routing all;
  all.expert.resize(static_cast<std::size_t>(n * e.per_token));
  all.weight.resize(all.expert.size());
  in_blocks(0, n, scratch, [&](std::int64_t first, std::int64_t rows, LayerScratch* s) {
    float* logits = room(&s->head_parts, rows * e.count);
    router.forward(rows, normed + first * hidden, false, logits);
    const Routing some = route(e, rows, logits, l.correction);
    std::copy(some.expert.begin(), some.expert.end(), all.expert.begin() + first * e.per_token);
    std::copy(some.weight.begin(), some.weight.end(), all.weight.begin() + first * e.per_token);
  });
  return group_rows(e, n, all);
}

// x += weight x expert(normed), for the rows that chose it.
void add_expert(const RowsByExpert& by, std::int64_t expert, std::int64_t hidden, const MlpProducts& mlp,
                const float* normed, float* x, std::vector<LayerScratch>* scratch) {
  const std::int64_t begin = by.begin[static_cast<std::size_t>(expert)],
                     end = by.begin[static_cast<std::size_t>(expert) + 1];
  in_blocks(begin, end, scratch, [&](std::int64_t first, std::int64_t rows, LayerScratch* s) {
    float *z = room(&s->normed, rows * hidden), *y = room(&s->attended, rows * hidden);
    gather_rows(rows, hidden, normed, by.row.data() + first, z);
    zero_rows(rows, hidden, y);
    add_mlp(mlp, {}, rows, hidden, z, y, s);
    add_weighted(rows, hidden, by.row.data() + first, by.weight.data() + first, y, x);
  });
}

}  // namespace

std::size_t experts_read_ahead() {
  return static_cast<std::size_t>(std::clamp(num_threads() / 8, 2, 16));
}

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

// Few rows: experts side by side, a thread each, into rows of their own; these are added in the order of the
// experts, whichever thread was first.
void resident_expert_layer(const TargetConfig& c, const LayerTensors& l, std::int64_t n,
                           const LayerProducts& products, float* x, float* normed,
                           std::vector<LayerScratch>* scratch) {
  rms_norm(n, c.hidden, x, c.hidden, l.post_norm.data(), c.rms_norm_eps, normed, c.hidden,
           room(&(*scratch)[0].inv, n));
  const RowsByExpert by = choose_experts(c.experts, c.hidden, l, *products.router, n, normed, scratch);
  if (c.experts.shared > 0) add_mlp(products.shared, {}, n, c.hidden, normed, x, &(*scratch)[0]);
  std::vector<float> parts(by.row.size() * static_cast<std::size_t>(c.hidden));
  parallel_items(c.experts.count, [&](std::int64_t expert, int thread) {
    const std::int64_t first = by.begin[static_cast<std::size_t>(expert)],
                       rows = by.begin[static_cast<std::size_t>(expert) + 1] - first;
    if (rows == 0) return;
    LayerScratch* s = &(*scratch)[static_cast<std::size_t>(thread)];
    float* z = room(&s->attended, rows * c.hidden);
    gather_rows(rows, c.hidden, normed, by.row.data() + first, z);
    add_mlp(products.experts[static_cast<std::size_t>(expert)], {}, rows, c.hidden, z,
            parts.data() + first * c.hidden, s);
  });
  parallel_for(c.hidden, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t i = 0; i < by.row.size(); ++i) {
      const float* from = parts.data() + static_cast<std::int64_t>(i) * c.hidden;
      float* to = x + by.row[i] * c.hidden;
      for (std::int64_t j = begin; j < end; ++j) to[j] += by.weight[i] * from[j];
    }
  });
}

Status expert_layer(const TargetConfig& c, std::int64_t layer, const LayerTensors& l, std::int64_t n,
                    TargetTensors& tensors, LayerProducts& products, float* x, float* normed,
                    std::vector<LayerScratch>* scratch) {
  const ExpertConfig& e = c.experts;
  rms_norm(n, c.hidden, x, c.hidden, l.post_norm.data(), c.rms_norm_eps, normed, c.hidden,
           room(&(*scratch)[0].inv, n));
  const RowsByExpert by = choose_experts(e, c.hidden, l, *products.router, n, normed, scratch);
  std::vector<std::int64_t> used;
  for (std::int64_t expert = 0; expert < e.count; ++expert)
    if (by.begin[static_cast<std::size_t>(expert)] < by.begin[static_cast<std::size_t>(expert) + 1])
      used.push_back(expert);
  const auto read = [&](std::size_t i) {
    return std::async(std::launch::async, [&, i] { return read_expert(c, layer, used[i], tensors); });
  };
  std::deque<std::future<Result<ExpertTensors>>> next;
  const auto read_on = [&](std::size_t i) {
    if (i < used.size()) next.push_back(read(i));
  };
  const std::size_t ahead = experts_read_ahead();
  for (std::size_t i = 0; i < ahead; ++i) read_on(i);
  if (e.shared > 0)
    in_blocks(0, n, scratch, [&](std::int64_t first, std::int64_t rows, LayerScratch* s) {
      add_mlp(products.shared, {}, rows, c.hidden, normed + first * c.hidden, x + first * c.hidden, s);
    });
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (interrupted()) return Status(StatusCode::kInterrupted, "stopped by a signal");
    const double start = monotonic_seconds();
    Result<ExpertTensors> weights = next.front().get();
    tensors.add_waited(monotonic_seconds() - start);
    next.pop_front();
    if (!weights.ok()) return weights.status();
    products.load_expert(&*weights);
    read_on(i + ahead);
    add_expert(by, used[i], c.hidden, products.experts[0], normed, x, scratch);
  }
  return {};
}

}  // namespace eaglet
