#pragma once

#include <cstdint>

namespace eaglet {

/// How Muon's step follows from the learning rate for a matrix [rows, columns].
enum class MuonRate {
  kMatchRmsAdamw,  // 0.2 * sqrt(max(rows, columns)): an update as large as AdamW's, so both share one rate
  kOriginal        // sqrt(max(1, rows / columns))
};

struct MuonOptions {
  double momentum = 0.95, weight_decay = 0.1;
  bool nesterov = true;
  int ns_steps = 5;  // Newton-Schulz iterations
  MuonRate rate = MuonRate::kMatchRmsAdamw;
};

/// Floats that muon() and newton_schulz() need as scratch for a matrix of this shape, where the matrix lies.
std::int64_t muon_scratch_floats(std::int64_t rows, std::int64_t columns);

/// One Muon update of a matrix in place (torch.optim.Muon, in fp32; Jordan et al. 2024):
///   b = momentum*b + (1-momentum)*g;  u = nesterov ? momentum*b + (1-momentum)*g : b
///   w = w*(1 - lr*weight_decay) - lr * factor * newton_schulz(u)      with g = gradient * gradient_scale
/// All [rows, columns] fp32 row-major, rows and columns >= 2; scratch of muon_scratch_floats(). Same thread
/// count: same bits.
void muon(std::int64_t rows, std::int64_t columns, float* weights, const float* gradients, float* momentum,
          double gradient_scale, double learning_rate, const MuonOptions& options, float* scratch);

/// x [rows, columns] becomes U f(S) V^T of its singular values S, f near 1 for all that are not tiny: x over
/// its norm, then `steps` times x = a*x + (b*A + c*A*A)*x with A = x*x^T (of the smaller side).
void newton_schulz(std::int64_t rows, std::int64_t columns, int steps, float* x, float* scratch);

/// The quintic's coefficients: steepest at 0 among those that keep (0, 1] near 1.
inline constexpr double kNewtonSchulz[3] = {3.4445, -4.7750, 2.0315};
inline constexpr double kNewtonSchulzEps = 1e-7;  // least norm divided by
/// The factor of MuonRate.
double muon_rate_factor(MuonRate rate, std::int64_t rows, std::int64_t columns);

}  // namespace eaglet
