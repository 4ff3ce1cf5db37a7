#include "train/rank_exchange.h"

#include <algorithm>

#include "device/threads.h"

namespace eaglet {
namespace {

// Calls f on every number, always in the same order: once to pack, once to unpack.
template <class F>
void each_number(RankFacts* facts, const F& f) {
  for (DepthSums& d : facts->sums.depth)
    for (double* v : {&d.loss, &d.counted, &d.full_right, &d.cond_right, &d.cond_total, &d.outside}) f(v);
  for (double* v : {&facts->tokens, &facts->needed_flops, &facts->not_finite, &facts->sigint, &facts->sigterm,
                    &facts->save, &facts->time_up})
    f(v);
}

}  // namespace

Status exchange(Comm& comm, int ttt_steps, RankFacts* facts) {
  if (comm.ranks() == 1) return {};
  facts->sums.depth.resize(static_cast<std::size_t>(ttt_steps));
  std::vector<double> numbers;
  each_number(facts, [&](double* v) { numbers.push_back(*v); });
  EAGLET_RETURN_IF_ERROR(comm.sum(static_cast<std::int64_t>(numbers.size()), numbers.data()));
  std::size_t i = 0;
  each_number(facts, [&](double* v) { *v = numbers[i++]; });
  return {};
}

}  // namespace eaglet
