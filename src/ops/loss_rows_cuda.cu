#include "device/cuda_device.h"
#include "ops/loss_rows_cuda.h"

namespace eaglet::cuda {
namespace {

// One block a row. A row of logits is read several times; it stays in the L2 cache meanwhile.
constexpr int kThreads = 256;
constexpr int kKinds = 7;
constexpr float kSmallestOverlap = 1e-5f;  // nla: -log max(a, 1e-5)
constexpr float kSmallestMean = 1e-38f;    // jsd: log of at least this

__device__ Best best_of_row(std::int64_t n, const float* row, Best* partial) {
  Best mine = no_best();
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
    mine = better(mine, {row[i], static_cast<std::int32_t>(i)});
  return block_best<kThreads>(mine, partial);
}

__global__ void make_teachers(std::int64_t n, const float* logits, float* p, TeacherFacts* facts) {
  EAGLET_SHARED_ARRAY(float, sums, kThreads / kWarp);
  EAGLET_SHARED_ARRAY(Best, bests, kThreads / kWarp);
  const float* row = logits + blockIdx.x * n;
  float* to = p + blockIdx.x * n;
  const Best best = best_of_row(n, row, bests);
  float sum = 0, weighted = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float e = expf(row[i] - best.value);
    sum += e;
    weighted += e * (row[i] - best.value);
  }
  sum = block_sum<kThreads>(sum, sums);
  weighted = block_sum<kThreads>(weighted, sums);
  const float inverse = 1.0f / sum, log_sum = logf(sum);
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) to[i] = expf(row[i] - best.value) * inverse;
  if (threadIdx.x == 0)
    facts[blockIdx.x] = {weighted * inverse - log_sum, best.value + log_sum, 1.0f, best.at, 0};
}

// Probabilities are normalised over the whole vocabulary, so those of the draft's tokens add up to mass <= 1.
__global__ void make_teachers_of_whole(std::int64_t vocab, const float* whole, std::int64_t n,
                                       const std::int32_t* draft_to_target, float* logits, float* p,
                                       TeacherFacts* facts, std::int32_t* best_whole) {
  EAGLET_SHARED_ARRAY(float, sums, kThreads / kWarp);
  EAGLET_SHARED_ARRAY(Best, bests, kThreads / kWarp);
  const float* row = whole + blockIdx.x * vocab;
  float *to = p + blockIdx.x * n, *kept = logits + blockIdx.x * n;
  const Best largest = best_of_row(vocab, row, bests);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads) sum += expf(row[i] - largest.value);
  const float log_sum_exp = largest.value + logf(block_sum<kThreads>(sum, sums));
  Best mine = no_best();
  float mass = 0, weighted = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float logit = row[draft_to_target[i]], probability = expf(logit - log_sum_exp);
    kept[i] = logit;
    to[i] = probability;
    mass += probability;
    weighted += probability * (logit - log_sum_exp);
    mine = better(mine, {logit, static_cast<std::int32_t>(i)});
  }
  const Best best = block_best<kThreads>(mine, bests);
  mass = block_sum<kThreads>(mass, sums);
  weighted = block_sum<kThreads>(weighted, sums);
  if (threadIdx.x != 0) return;
  facts[blockIdx.x] = {weighted, log_sum_exp, mass, best.at, draft_to_target[best.at] != largest.at ? 1 : 0};
  best_whole[blockIdx.x] = largest.at;
}

__global__ void find_best(std::int64_t n, const float* values, std::int32_t* best) {
  EAGLET_SHARED_ARRAY(Best, bests, kThreads / kWarp);
  const Best found = best_of_row(n, values + blockIdx.x * n, bests);
  if (threadIdx.x == 0) best[blockIdx.x] = found.at;
}

// The sum of the terms' weights by kind.
struct KindWeights {
  float of[kKinds];
  __device__ __host__ float operator[](LossKind kind) const { return of[static_cast<int>(kind)]; }
};

// Sums over one row, the same in every thread.
struct RowSums {
  float overlap = 0, mass_below = 0;  // sum min(p, q), and sum of q where q < p
  float qz = 0, qt = 0;               // sums of q * logit, of the draft and of the teacher
  float q_log_mean = 0, p_log_mean = 0;
};

__device__ float log_mean(float p, float q) {
  return logf(fmaxf(0.5f * (p + q), kSmallestMean));
}

// z relative to the row's largest, `log_sum` of these: q_i = exp(z_i - largest - log_sum).
struct DraftRow {
  const float* z;
  float largest, log_sum;
  __device__ float log_q(std::int64_t i) const { return z[i] - largest - log_sum; }
};

__device__ RowSums row_sums(const KindWeights& w, std::int64_t n, const float* p, const float* teacher_logits,
                            const DraftRow& draft, float* partial) {
  RowSums s;
  const bool ratios = w[LossKind::kRkl] != 0, means = w[LossKind::kJsd] != 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float log_q = draft.log_q(i), q = expf(log_q);
    s.overlap += fminf(p[i], q);
    s.mass_below += q < p[i] ? q : 0.0f;
    s.qz += q * log_q;
    if (ratios) s.qt += q * teacher_logits[i];
    if (means) {
      const float log_m = log_mean(p[i], q);
      s.q_log_mean += q * log_m;
      s.p_log_mean += p[i] * log_m;
    }
  }
  s.overlap = block_sum<kThreads>(s.overlap, partial);
  s.mass_below = block_sum<kThreads>(s.mass_below, partial);
  s.qz = block_sum<kThreads>(s.qz, partial);
  s.qt = block_sum<kThreads>(s.qt, partial);
  s.q_log_mean = block_sum<kThreads>(s.q_log_mean, partial);
  s.p_log_mean = block_sum<kThreads>(s.p_log_mean, partial);
  return s;
}

// d loss / d z_i = q * (of_q + below*[q < p] + of_ratio*log(q/p) + of_mean*log(q/m)) + of_p * p + [i = best]
// at_best
struct Gradient {
  float of_q = 0, of_p = 0, below = 0, at_best = 0, of_ratio = 0, of_mean = 0;
  __device__ void add_kl(float weight, float mass) {
    of_q += weight * mass;
    of_p -= weight;
  }
  __device__ void add_overlap(float weight, float mass_below) {
    of_q -= weight * mass_below;
    below += weight;
  }
};

// Value of all terms, and the coefficients of their gradient.
__device__ float add_up(const KindWeights& w, const TeacherFacts& t, const RowSums& s, float kl,
                        float log_q_best, Gradient* g) {
  const float a = s.overlap, l = expf(-3.0f * a);
  float total = w[LossKind::kKl] * kl + w[LossKind::kTv] * (1.0f - a) +
                w[LossKind::kLkHybrid] * (l * kl + (1.0f - l) * (1.0f - a));
  g->add_kl(w[LossKind::kKl] + w[LossKind::kLkHybrid] * l, t.mass);
  g->add_overlap(-w[LossKind::kTv] - w[LossKind::kLkHybrid] * (1.0f - l), s.mass_below);
  if (t.best_is_outside == 0) {  // else nothing the draft could say would be right
    total -= w[LossKind::kCe] * log_q_best;
    g->of_q += w[LossKind::kCe];
    g->at_best -= w[LossKind::kCe];
  }
  total -= w[LossKind::kNla] * logf(fmaxf(a, kSmallestOverlap));
  if (a > kSmallestOverlap) g->add_overlap(-w[LossKind::kNla] / a, s.mass_below);
  // KL(q||p): q * (log q - log p - KL).
  const float rkl = s.qz - s.qt + t.log_sum_exp;
  total += w[LossKind::kRkl] * rkl;
  g->of_ratio = w[LossKind::kRkl];
  g->of_q -= w[LossKind::kRkl] * rkl;
  // Only KL(q||m) of jsd has a gradient: that through m vanishes.
  const float q_part = s.qz - s.q_log_mean;
  total += w[LossKind::kJsd] * 0.5f * (t.entropy_term - s.p_log_mean + q_part);
  g->of_mean = 0.5f * w[LossKind::kJsd];
  g->of_q -= 0.5f * w[LossKind::kJsd] * q_part;
  return total;
}

__global__ void make_losses(KindWeights w, bool only_kl, Teachers teachers, const std::int32_t* teacher,
                            const float* weight, float* z, float* loss, std::int32_t* best) {
  EAGLET_SHARED_ARRAY(float, sums, kThreads / kWarp);
  EAGLET_SHARED_ARRAY(Best, bests, kThreads / kWarp);
  const std::int64_t n = teachers.n, of_teacher = teacher[blockIdx.x] * n;
  const TeacherFacts facts = teachers.facts[teacher[blockIdx.x]];
  const float *p = teachers.p + of_teacher, *logits = teachers.logits + of_teacher;
  float* row = z + blockIdx.x * n;
  const Best largest = best_of_row(n, row, bests);
  float sum = 0, expected = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    sum += expf(row[i] - largest.value);
    expected += p[i] * (row[i] - largest.value);
  }
  // Before the sums' barriers: afterwards another thread may have put a gradient there.
  const float z_at_best = row[facts.best];
  sum = block_sum<kThreads>(sum, sums);
  expected = block_sum<kThreads>(expected, sums);
  const DraftRow draft{row, largest.value, logf(sum)};
  const float kl = facts.entropy_term - expected + facts.mass * draft.log_sum;
  RowSums s;
  if (!only_kl) s = row_sums(w, n, p, logits, draft, sums);
  Gradient g;
  const float total = add_up(w, facts, s, kl, z_at_best - largest.value - draft.log_sum, &g);
  if (threadIdx.x == 0) {
    loss[blockIdx.x] = total;
    best[blockIdx.x] = largest.at;
  }
  const float scale = weight[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float log_q = draft.log_q(i), q = expf(log_q);
    float factor = g.of_q + (q < p[i] ? g.below : 0.0f);
    if (g.of_ratio != 0) factor += g.of_ratio * (log_q - logits[i] + facts.log_sum_exp);
    if (g.of_mean != 0) factor += g.of_mean * (log_q - log_mean(p[i], q));
    row[i] = scale * (q * factor + g.of_p * p[i] + (i == facts.best ? g.at_best : 0.0f));
  }
}

}  // namespace

void teacher_rows(std::int64_t rows, std::int64_t n, const float* logits, float* p, TeacherFacts* facts) {
  if (rows == 0) return;
  launch("teacher_rows", make_teachers, dim3(static_cast<unsigned>(rows)), dim3(kThreads), n, logits, p,
         facts);
}

void teacher_rows_of_whole(std::int64_t rows, std::int64_t vocab, const float* whole, std::int64_t n,
                           const std::int32_t* draft_to_target, float* logits, float* p, TeacherFacts* facts,
                           std::int32_t* best_whole) {
  if (rows == 0) return;
  launch("teacher_rows_of_whole", make_teachers_of_whole, dim3(static_cast<unsigned>(rows)), dim3(kThreads),
         vocab, whole, n, draft_to_target, logits, p, facts, best_whole);
}

void best_of_rows(std::int64_t rows, std::int64_t n, const float* values, std::int32_t* best) {
  if (rows == 0) return;
  launch("best_of_rows", find_best, dim3(static_cast<unsigned>(rows)), dim3(kThreads), n, values, best);
}

void loss_rows(const std::vector<LossTerm>& terms, std::int64_t rows, const Teachers& teachers,
               const std::int32_t* teacher, const float* weight, float* z, float* loss, std::int32_t* best) {
  if (rows == 0) return;
  KindWeights weights = {};
  for (const LossTerm& term : terms)
    weights.of[static_cast<int>(term.kind)] += static_cast<float>(term.weight);
  bool only_kl = true;
  for (int kind = 0; kind < kKinds; ++kind)
    if (kind != static_cast<int>(LossKind::kKl) && weights.of[kind] != 0) only_kl = false;
  launch("loss_rows", make_losses, dim3(static_cast<unsigned>(rows)), dim3(kThreads), weights, only_kl,
         teachers, teacher, weight, z, loss, best);
}

}  // namespace eaglet::cuda
