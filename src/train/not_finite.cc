#include "train/not_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace eaglet {
namespace {

constexpr std::size_t kNamed = 8;

bool all_finite(const float* values, std::int64_t n) {
  return std::all_of(values, values + n, [](float v) { return std::isfinite(v); });
}

std::string first_names(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamed);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string bad_tensors(const std::vector<ParameterInfo>& table, const float* values, bool trainable_only) {
  std::vector<std::string> names;
  for (const ParameterInfo& parameter : table)
    if ((parameter.trainable || !trainable_only) &&
        !all_finite(values + parameter.offset, parameter.elements))
      names.push_back(parameter.name);
  return names.empty() ? std::string() : first_names(names);
}

}  // namespace

std::string document_names(const StoreReader& store, const std::vector<std::size_t>& documents) {
  std::vector<std::string> names;
  for (const std::size_t i : documents) names.push_back(store.documents()[i].id);
  return first_names(names);
}

std::vector<std::size_t> documents_not_finite(const PackedBatch& batch) {
  std::vector<std::size_t> bad;
  if (batch.rows == 0) return bad;
  const auto rows = static_cast<std::size_t>(batch.rows);
  const std::size_t aux = batch.aux_hidden_states.size() / rows,
                    last = batch.last_hidden_states.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int32_t document = batch.document_ids[row];
    if (document < 0) continue;
    const std::size_t index = batch.documents[static_cast<std::size_t>(document)];
    if (!bad.empty() && bad.back() == index) continue;
    if (!all_finite(batch.aux_hidden_states.data() + row * aux, static_cast<std::int64_t>(aux)) ||
        !all_finite(batch.last_hidden_states.data() + row * last, static_cast<std::int64_t>(last)))
      bad.push_back(index);
  }
  return bad;
}

std::string tensors_not_finite(const DraftWeights& weights, const float* gradients) {
  std::string text;
  if (const std::string bad = bad_tensors(weights.table, weights.values.data(), false); !bad.empty())
    text = "weights of " + bad;
  if (gradients == nullptr) return text;
  if (const std::string bad = bad_tensors(weights.table, gradients, true); !bad.empty())
    text += (text.empty() ? "gradients of " : "; gradients of ") + bad;
  return text;
}

}  // namespace eaglet
