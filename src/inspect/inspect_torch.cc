#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "formats/torch_file.h"
#include "inspect/inspectors.h"
#include "inspect/map_facts.h"
#include "inspect/number_check.h"

namespace eaglet {
namespace {

constexpr std::size_t kMostLeaves = 10000;  // of the table

/// Every leaf with the way to it: "hidden_states[3]".
struct Leaf {
  std::string name;
  const TorchValue* value;
};
void add_leaves(const std::string& name, const TorchValue& value, std::vector<Leaf>* leaves) {
  if (leaves->size() >= kMostLeaves) return;
  if (value.kind == TorchValue::Kind::kDict) {
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      const TorchValue& key = *value.items[i];
      const std::string text = key.kind == TorchValue::Kind::kString ? key.text : std::to_string(key.integer);
      add_leaves(name.empty() ? text : name + "." + text, *value.values[i], leaves);
    }
  } else if (value.kind == TorchValue::Kind::kList) {
    for (std::size_t i = 0; i < value.items.size(); ++i)
      add_leaves(fmt::format("{}[{}]", name, i), *value.items[i], leaves);
  } else {
    leaves->push_back({name, &value});
  }
}

bool all_integers(const TorchValue& value) {
  const auto whole = [](const TorchValue* item) { return item->kind == TorchValue::Kind::kInteger; };
  return !value.items.empty() && std::all_of(value.items.begin(), value.items.end(), whole) &&
         std::all_of(value.values.begin(), value.values.end(), whole);
}

/// Whose file this looks like.
std::string what_it_holds(const TorchValue& root) {
  const auto has = [&](const char* key) { return root.find(key) != nullptr; };
  if (has("aux_hidden_states") && has("hidden_states"))
    return "hidden states of one document (Model-Optimizer)";
  if (has("aux_hidden_state") && has("hidden_state")) return "hidden states of one document (SpecForge)";
  if (has("hidden_state") && has("target")) return "hidden states of one document (speculators 0.2)";
  if (has("hidden_states") && has("input_ids")) return "hidden states of one document (speculators 0.3, 0.4)";
  if (has("selected_token_ids")) return "a vocabulary map (NeMo)";
  if (has("d2t")) return "a vocabulary map (SpecForge, EAGLE)";
  if (root.kind == TorchValue::Kind::kDict && all_integers(root)) return "token counts";
  if (root.kind == TorchValue::Kind::kTensor && root.tensor.shape.size() == 1 &&
      TorchFile::read_i64(root.tensor).ok())
    return "a list of whole numbers: a vocabulary map?";
  if (root.kind == TorchValue::Kind::kList && all_integers(root))
    return "a list of whole numbers: a vocabulary map?";
  return {};
}

Json leaf_row(const Leaf& leaf) {
  const TorchValue& value = *leaf.value;
  Json row = {{"name", leaf.name}, {"dtype", kind_name(value.kind)}, {"shape", nullptr}, {"bytes", nullptr}};
  if (value.kind != TorchValue::Kind::kTensor) return row;
  row["dtype"] = std::string(dtype_name(value.tensor.dtype));
  row["shape"] = value.tensor.shape;
  row["bytes"] = static_cast<std::uint64_t>(value.tensor.elements()) * dtype_bytes(value.tensor.dtype);
  return row;
}

/// The file's numbers must be finite, its loss mask as long as its ids.
Status check_leaves(const std::vector<Leaf>& leaves, Inspection* inspection, Progress& progress) {
  progress.begin("verify", leaves.size(), "values");
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (interrupted())
      return Status(StatusCode::kInterrupted, "stopped by a signal before every value was checked");
    progress.update(i + 1);
    const TorchValue& value = *leaves[i].value;
    if (value.kind != TorchValue::Kind::kTensor) continue;
    const auto numbers = TorchFile::read_f32(value.tensor);
    if (!numbers.ok()) continue;  // whole numbers are finite
    const NumberFacts facts = check_numbers(Dtype::kF32, reinterpret_cast<const std::byte*>(numbers->data()),
                                            value.tensor.elements());
    if (facts.first_not_finite)
      inspection->problems.push_back(fmt::format("tensor {} holds {} at {}", leaves[i].name,
                                                 facts.first_is_nan ? "NaN" : "infinity",
                                                 place_in(value.tensor.shape, *facts.first_not_finite)));
  }
  progress.end(fmt::format("{} values checked", leaves.size()));
  return {};
}

void add_count_facts(const TorchValue& root, Inspection* inspection) {
  std::int64_t total = 0;
  for (const TorchValue* count : root.values) {
    if (count->integer < 0 || __builtin_add_overflow(total, count->integer, &total)) {
      inspection->problems.push_back("a count is negative, or they are too large together");
      return;
    }
  }
  inspection->facts["counted_ids"] = root.items.size();
  inspection->facts["counted_tokens"] = total;
}

}  // namespace

Result<Inspection> inspect_torch(const InspectOptions& options, Progress& progress) {
  Inspection inspection = begin_inspection("torch file", options.path);
  EAGLET_ASSIGN_OR_RETURN(const TorchFile file, options.path.ends_with(".gz")
                                                    ? TorchFile::open_gzip(options.path)
                                                    : TorchFile::open(options.path));
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(options.path));
  inspection.facts["bytes"] = bytes;
  const TorchValue& root = file.root();
  const std::string holds = what_it_holds(root);
  if (!holds.empty()) inspection.facts["holds"] = holds;
  if (holds == "token counts") {
    add_count_facts(root, &inspection);
    return inspection;
  }
  std::vector<Leaf> leaves;
  if (holds.find("map") != holds.npos) add_map_facts(options, &inspection);
  if (root.kind == TorchValue::Kind::kList && all_integers(root)) {
    inspection.facts["numbers"] = root.items.size();
    return inspection;
  }
  add_leaves("", root, &leaves);
  Json table = Json::array();
  for (const Leaf& leaf : leaves) table.push_back(leaf_row(leaf));
  inspection.facts["values"] = table;
  if (leaves.size() >= kMostLeaves)
    inspection.doubts.push_back(fmt::format("only the first {} values are listed", kMostLeaves));
  if (options.verify) EAGLET_RETURN_IF_ERROR(check_leaves(leaves, &inspection, progress).at(options.path));
  return inspection;
}

}  // namespace eaglet
