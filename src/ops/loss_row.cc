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
  float kl;         // KL(p||q)
  Overlap overlap;  // d overlap / d z_i = q_i * ([q_i < p_i] - mass_below)
};

// The gradient of most terms is a mix of q, p and the q below p: one pass writes the sum of all terms.
struct Mix {
  float q = 0, p = 0, q_below = 0, at_best = 0;
  void add_kl(float weight, const TeacherRow& teacher) {
    q += weight * teacher.mass;
    p -= weight;
  }
  void add_overlap(float weight, const Overlap& overlap) {
    q -= weight * overlap.mass_below;
    q_below += weight;
  }
};

// Adds weight * d term / d z to the mix and returns the term's value.
float mixed_term(LossKind kind, float weight, const TeacherRow& teacher, const DraftRow& draft, Mix* mix) {
  const float a = draft.overlap.overlap;
  switch (kind) {
    case LossKind::kKl:
      mix->add_kl(weight, teacher);
      return draft.kl;
    case LossKind::kCe:
      if (teacher.best_is_outside) return 0;  // nothing the draft could say would be right
      mix->q += weight;
      mix->at_best -= weight;
      return draft.log_sum_exp - draft.z[teacher.best];
    case LossKind::kTv:
      mix->add_overlap(-weight, draft.overlap);
      return 1.0f - a;
    case LossKind::kNla:
      if (a <= kSmallestOverlap) return -std::log(kSmallestOverlap);
      mix->add_overlap(-weight / a, draft.overlap);
      return -std::log(a);
    case LossKind::kLkHybrid: {
      const float l = std::exp(-3.0f * a);
      mix->add_kl(weight * l, teacher);
      mix->add_overlap(-weight * (1.0f - l), draft.overlap);
      return l * draft.kl + (1.0f - l) * (1.0f - a);
    }
    case LossKind::kRkl:
    case LossKind::kJsd:
      break;  // not a mix: added_term()
  }
  return 0;
}

// KL(q||p) has the gradient q * (log q - log p - KL(q||p)).
float add_rkl(float weight, const TeacherRow& teacher, const DraftRow& draft, std::int64_t n, float* g) {
  const float shift = draft.log_sum_exp - teacher.log_sum_exp;
  const float value = vdot(draft.q, draft.z, n) - vdot(draft.q, teacher.logits, n) - shift;
  vadd_log_ratio(weight, draft.q, draft.z, teacher.logits, shift + value, n, g);
  return value;
}

// With m = (p + q) / 2 only KL(q||m) has a gradient: q * (log q - log m - KL(q||m)); that through m vanishes.
float add_jsd(float weight, const TeacherRow& teacher, const DraftRow& draft, std::int64_t n, float* g) {
  const LogMean sums = vlog_mean(teacher.p, draft.q, n);
  const float q_part = vdot(draft.q, draft.z, n) - draft.log_sum_exp - sums.by_q;
  vadd_log_mean(0.5f * weight, draft.q, draft.z, teacher.p, draft.log_sum_exp + q_part, n, g);
  return 0.5f * (teacher.entropy_term - sums.by_p + q_part);
}

bool is_mixed(LossKind kind) {
  return kind != LossKind::kRkl && kind != LossKind::kJsd;
}

// The weighted sum of all terms; its gradient times `gradient_weight` goes to g, which is not draft.z.
double all_terms(const std::vector<LossTerm>& terms, const TeacherRow& teacher, const DraftRow& draft,
                 std::int64_t n, float gradient_weight, float* g) {
  double total = 0;
  Mix mix;
  for (const LossTerm& t : terms)
    if (is_mixed(t.kind))
      total +=
          t.weight * mixed_term(t.kind, static_cast<float>(t.weight) * gradient_weight, teacher, draft, &mix);
  voverlap_mix(mix.q, draft.q, mix.p, teacher.p, mix.q_below, n, g);
  g[teacher.best] += mix.at_best;
  for (const LossTerm& t : terms) {
    const float weight = static_cast<float>(t.weight) * gradient_weight;
    if (t.kind == LossKind::kRkl) total += t.weight * add_rkl(weight, teacher, draft, n, g);
    if (t.kind == LossKind::kJsd) total += t.weight * add_jsd(weight, teacher, draft, n, g);
  }
  return total;
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
  DraftRow draft{scratch, z, z_best + std::log(sum), 0, voverlap(teacher.p, 1.0f / sum, n, scratch)};
  draft.kl = teacher.entropy_term - expected + teacher.mass * draft.log_sum_exp;
  float* gradient = scratch + n;
  const double total = all_terms(terms, teacher, draft, n, gradient_weight, gradient);
  std::copy(gradient, gradient + n, z);
  return static_cast<float>(total);
}

}  // namespace eaglet
