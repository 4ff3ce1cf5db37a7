#include <numeric>

#include "draft/draft_core.h"

namespace eaglet::draft_core {
namespace {

// Calls visit(array, where its address goes) for every index array of the chunk that ops read.
template <class Visit>
void each_array(Core* core, const Visit& visit) {
  const ChunkPlan& chunk = core->chunk;
  ChunkIndex& index = core->index;
  visit(chunk.key_positions, &index.key_positions);
  visit(core->index_memory.tokens, &index.tokens);
  for (std::size_t k = 0; k < chunk.steps.size(); ++k) {
    const ChunkPlan::Step& step = chunk.steps[k];
    ChunkIndex::Step& to = index.steps[k];
    visit(step.key_of_live, &to.key_of_live);
    visit(step.source_key, &to.source_key);
    visit(step.positions, &to.positions);
    visit(step.parent, &to.parent);
    visit(step.entry_live, &to.entry_live);
    for (std::size_t j = 1; j <= k; ++j) visit(chunk.own_index[k][j], &index.own_index[k][j]);
  }
}

// Numbers that all arrays of a chunk of these sizes have at most.
std::int64_t packed_size(const ChunkSizes& sizes) {
  const auto steps = static_cast<std::int64_t>(sizes.live.size());
  return sizes.keys + sizes.rows + steps * 5 * sizes.keys + steps * (steps - 1) / 2 * sizes.keys;
}

}  // namespace

Status take_index(const ChunkSizes& largest, Core* core) {
  const auto steps = static_cast<std::size_t>(core->dims.K), rows = static_cast<std::size_t>(largest.rows);
  core->index.steps.resize(steps);
  core->index.own_index.assign(steps, std::vector<const std::int32_t*>(steps, nullptr));
  IndexMemory& memory = core->index_memory;
  memory.tokens.reserve(rows);
  memory.identity.resize(rows);
  std::iota(memory.identity.begin(), memory.identity.end(), 0);
  core->index.identity = memory.identity.data();
  if (!core->on_device()) return {};
  memory.packed.reserve(static_cast<std::size_t>(packed_size(largest)));
  EAGLET_RETURN_IF_ERROR(memory.on_device.take(packed_size(largest), core->device));
  EAGLET_RETURN_IF_ERROR(memory.identity_on_device.take(largest.rows, core->device));
  memory.identity_on_device.write(0, largest.rows, memory.identity.data());
  core->index.identity = memory.identity_on_device.data();
  return {};
}

void place_index(const DraftInputs& inputs, Core* core) {
  IndexMemory& memory = core->index_memory;
  memory.tokens.clear();
  for (const std::int32_t row : core->chunk.rows) memory.tokens.push_back(inputs.input_ids[row]);
  if (!core->on_device()) {
    each_array(core,
               [](const std::vector<std::int32_t>& from, const std::int32_t** at) { *at = from.data(); });
    return;
  }
  memory.packed.clear();
  each_array(core, [&](const std::vector<std::int32_t>& from, const std::int32_t** at) {
    *at = memory.on_device.data() + memory.packed.size();
    memory.packed.insert(memory.packed.end(), from.begin(), from.end());
  });
  memory.on_device.write(0, static_cast<std::int64_t>(memory.packed.size()), memory.packed.data());
}

}  // namespace eaglet::draft_core
