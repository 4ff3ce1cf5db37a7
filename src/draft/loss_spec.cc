#include <fmt/format.h>

#include <array>
#include <utility>

#include "draft/draft_model.h"
#include "formats/json.h"

namespace eaglet {
namespace {

constexpr std::array<std::pair<const char*, LossKind>, 7> kNames = {{{"kl_div", LossKind::kKl},
                                                                     {"rkl", LossKind::kRkl},
                                                                     {"jsd", LossKind::kJsd},
                                                                     {"ce", LossKind::kCe},
                                                                     {"tv", LossKind::kTv},
                                                                     {"nla", LossKind::kNla},
                                                                     {"lk_hybrid", LossKind::kLkHybrid}}};

Result<LossTerm> term_of(const std::string& name, double weight) {
  for (const auto& [known, kind] : kNames)
    if (name == known) return LossTerm{kind, weight};
  return Status(
      StatusCode::kConfig, fmt::format("there is no loss '{}'", name), "--loss-fn",
      "use kl_div, rkl, jsd, ce, tv, nla, lk_hybrid, or weights such as {\"ce\": 0.1, \"tv\": 0.9}");
}

}  // namespace

Result<std::vector<LossTerm>> parse_loss(const std::string& text) {
  std::vector<LossTerm> terms;
  if (text.find('{') == std::string::npos) {
    EAGLET_ASSIGN_OR_RETURN(LossTerm term, term_of(text, 1.0));
    terms.push_back(term);
    return terms;
  }
  auto weights = parse_json(text);
  if (!weights.ok()) return weights.status().at("--loss-fn");
  for (const auto& [name, weight] : weights->items()) {
    if (!weight.is_number())
      return Status(StatusCode::kConfig, fmt::format("the weight of loss '{}' is not a number", name),
                    "--loss-fn");
    EAGLET_ASSIGN_OR_RETURN(LossTerm term, term_of(name, weight.get<double>()));
    terms.push_back(term);
  }
  if (terms.empty()) return Status(StatusCode::kConfig, "the loss names no term", "--loss-fn");
  return terms;
}

}  // namespace eaglet
