#include "ops/loss_row.h"

#include <algorithm>
#include <cmath>

#include "ops/vector_math.h"

namespace eaglet {
namespace {

constexpr float kSmallestOverlap = 1e-5f;  // nla: -log max(a, 1e-5)

bool only_kl(const std::vector<LossTerm>& terms) {
  return terms.size() == 1 && terms[0].kind == LossKind::kKl && terms[0].weight == 1.0;
}

// What the terms need of the draft's row: q, its log, and the overlap with p.
struct DraftRow {
  const float* q;
  const float* z;  // logits
  float log_sum_exp;
  float kl;            // KL(p||q)
  float overlap;       // a = sum min(p, q)
  float overlap_mass;  // sum of q where q < p: d a / d z_i = q_i * ([q_i < p_i] - overlap_mass)
};

float log_q(const DraftRow& draft, std::int64_t i) {
  return draft.z[i] - draft.log_sum_exp;
}
float log_p(const TeacherRow& teacher, std::int64_t i) {
  return teacher.logits[i] - teacher.log_sum_exp;
}

float rkl_value(const TeacherRow& teacher, const DraftRow& draft, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(draft.q[i]) * (log_q(draft, i) - log_p(teacher, i));
  return static_cast<float>(sum);
}

float log_mean(const TeacherRow& teacher, const DraftRow& draft, std::int64_t i) {
  return std::log(std::max(0.5f * (teacher.p[i] + draft.q[i]), 1e-38f));
}

// The part of the Jensen-Shannon divergence that q carries: KL(q || (p+q)/2).
float jsd_q_part(const TeacherRow& teacher, const DraftRow& draft, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(draft.q[i]) * (log_q(draft, i) - log_mean(teacher, draft, i));
  return static_cast<float>(sum);
}

float jsd_p_part(const TeacherRow& teacher, const DraftRow& draft, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(teacher.p[i]) * (log_p(teacher, i) - log_mean(teacher, draft, i));
  return static_cast<float>(sum);
}

// Gradients of each kind with respect to z_i; `value` is what the kind's own sum came to.
void add_kl_gradient(float weight, const TeacherRow& teacher, const DraftRow& draft, std::int64_t n,
                     float* g) {
  for (std::int64_t i = 0; i < n; ++i) g[i] += weight * (teacher.mass * draft.q[i] - teacher.p[i]);
}
void add_rkl_gradient(float weight, float value, const TeacherRow& teacher, const DraftRow& draft,
                      std::int64_t n, float* g) {
  for (std::int64_t i = 0; i < n; ++i)
    g[i] += weight * draft.q[i] * (log_q(draft, i) - log_p(teacher, i) - value);
}
void add_jsd_gradient(float weight, float q_part, const TeacherRow& teacher, const DraftRow& draft,
                      std::int64_t n, float* g) {
  for (std::int64_t i = 0; i < n; ++i)
    g[i] += 0.5f * weight * draft.q[i] * (log_q(draft, i) - log_mean(teacher, draft, i) - q_part);
}
void add_ce_gradient(float weight, const TeacherRow& teacher, const DraftRow& draft, std::int64_t n,
                     float* g) {
  for (std::int64_t i = 0; i < n; ++i) g[i] += weight * draft.q[i];
  g[teacher.best] -= weight;
}
// d a / d z, times weight.
void add_overlap_gradient(float weight, const TeacherRow& teacher, const DraftRow& draft, std::int64_t n,
                          float* g) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float below = draft.q[i] < teacher.p[i] ? 1.0f : 0.0f;
    g[i] += weight * draft.q[i] * (below - draft.overlap_mass);
  }
}

// Adds weight_of_gradient * d term / d z to g and returns the term's value.
float term(LossKind kind, float weight, const TeacherRow& teacher, const DraftRow& draft, std::int64_t n,
           float* g) {
  switch (kind) {
    case LossKind::kKl:
      add_kl_gradient(weight, teacher, draft, n, g);
      return draft.kl;
    case LossKind::kRkl: {
      const float value = rkl_value(teacher, draft, n);
      add_rkl_gradient(weight, value, teacher, draft, n, g);
      return value;
    }
    case LossKind::kJsd: {
      const float q_part = jsd_q_part(teacher, draft, n);
      add_jsd_gradient(weight, q_part, teacher, draft, n, g);
      return 0.5f * (jsd_p_part(teacher, draft, n) + q_part);
    }
    case LossKind::kCe:
      if (teacher.best_is_outside) return 0;  // nothing the draft could say would be right
      add_ce_gradient(weight, teacher, draft, n, g);
      return -log_q(draft, teacher.best);
    case LossKind::kTv:
      add_overlap_gradient(-weight, teacher, draft, n, g);
      return 1.0f - draft.overlap;
    case LossKind::kNla:
      if (draft.overlap <= kSmallestOverlap) return -std::log(kSmallestOverlap);
      add_overlap_gradient(-weight / draft.overlap, teacher, draft, n, g);
      return -std::log(draft.overlap);
    case LossKind::kLkHybrid: {
      const float l = std::exp(-3.0f * draft.overlap);
      add_kl_gradient(weight * l, teacher, draft, n, g);
      add_overlap_gradient(-weight * (1.0f - l), teacher, draft, n, g);
      return l * draft.kl + (1.0f - l) * (1.0f - draft.overlap);
    }
  }
  return 0;
}

}  // namespace

TeacherRow teacher_row(const float* logits, std::int64_t n, float* p) {
  TeacherRow row;
  row.best = vargmax(logits, n);
  const float best = logits[row.best];
  const float sum = vexp_sum(logits, n, 1.0f, best, p);
  const float inverse = 1.0f / sum;
  vaxpby(0.0f, p, inverse, n, p);
  row.log_sum_exp = best + std::log(sum);
  row.entropy_term = vdot(p, logits, n) - row.log_sum_exp;
  row.p = p;
  row.logits = logits;
  return row;
}

TeacherRow teacher_row_of_whole(const float* logits, std::int64_t n, float log_sum_exp, float* p) {
  TeacherRow row;
  row.best = vargmax(logits, n);
  row.log_sum_exp = log_sum_exp;
  row.mass = vexp_sum(logits, n, 1.0f, log_sum_exp, p);
  row.entropy_term = vdot(p, logits, n) - row.mass * log_sum_exp;
  row.p = p;
  row.logits = logits;
  return row;
}

float loss_row(const std::vector<LossTerm>& terms, const TeacherRow& teacher, std::int64_t n,
               float gradient_weight, float* z, float* scratch, std::int64_t* best) {
  *best = vargmax(z, n);
  const float z_best = z[*best];
  const float expected = vdot(teacher.p, z, n);
  if (only_kl(terms)) {
    const float sum = vexp_sum(z, n, 1.0f, z_best, z);
    vaxpby(-gradient_weight, teacher.p, gradient_weight * teacher.mass / sum, n, z);
    return teacher.entropy_term - expected + teacher.mass * (z_best + std::log(sum));
  }
  const float sum = vexp_sum(z, n, 1.0f, z_best, scratch);
  vaxpby(0.0f, scratch, 1.0f / sum, n, scratch);
  DraftRow draft{scratch, z, z_best + std::log(sum), 0, 0, 0};
  draft.kl = teacher.entropy_term - expected + teacher.mass * draft.log_sum_exp;
  double overlap = 0, mass = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool below = scratch[i] < teacher.p[i];
    overlap += below ? scratch[i] : teacher.p[i];
    if (below) mass += scratch[i];
  }
  draft.overlap = static_cast<float>(overlap);
  draft.overlap_mass = static_cast<float>(mass);
  float* gradient = scratch + n;
  std::fill(gradient, gradient + n, 0.0f);
  double total = 0;
  for (const LossTerm& t : terms)
    total +=
        t.weight * term(t.kind, static_cast<float>(t.weight) * gradient_weight, teacher, draft, n, gradient);
  std::copy(gradient, gradient + n, z);
  return static_cast<float>(total);
}

}  // namespace eaglet
