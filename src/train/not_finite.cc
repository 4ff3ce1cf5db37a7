#include "train/not_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace eaglet {
namespace {

constexpr std::size_t kNamed = 8;

bool all_finite(const float* values, std::int64_t n) {
  return std::all_of(values, values + n, [](float v) { return std::isfinite(v); });
}

// As they are stored: bf16 with an exponent of ones, e4m3 of ones.
bool all_finite(StateForm form, const std::byte* values, std::size_t n) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(values[i]); };
  for (std::size_t i = 0; i < n; ++i)
    if (form == StateForm::kBF16 ? (at(2 * i + 1) & 0x7fu) == 0x7fu && (at(2 * i) & 0x80u) != 0
                                 : (at(i) & 0x7fu) == 0x7fu)
      return false;
  return true;
}

bool row_is_finite(const PackedBatch& batch, std::size_t row) {
  const auto rows = static_cast<std::size_t>(batch.rows);
  if (batch.form != StateForm::kF32) {
    const auto bytes = static_cast<std::size_t>(bytes_of_number(batch.form));
    const std::size_t aux = batch.stored_aux.size() / rows, last = batch.stored_last.size() / rows;
    return all_finite(batch.form, batch.stored_aux.data() + row * aux, aux / bytes) &&
           all_finite(batch.form, batch.stored_last.data() + row * last, last / bytes);
  }
  const std::size_t aux = batch.aux_hidden_states.size() / rows,
                    last = batch.last_hidden_states.size() / rows;
  return all_finite(batch.aux_hidden_states.data() + row * aux, static_cast<std::int64_t>(aux)) &&
         all_finite(batch.last_hidden_states.data() + row * last, static_cast<std::int64_t>(last));
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
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch.rows); ++row) {
    const std::int32_t document = batch.document_ids[row];
    if (document < 0) continue;
    const std::size_t index = batch.documents[static_cast<std::size_t>(document)];
    if (!bad.empty() && bad.back() == index) continue;
    if (!row_is_finite(batch, row)) bad.push_back(index);
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
