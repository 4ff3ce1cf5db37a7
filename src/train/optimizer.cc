#include "train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "comm/device_ranks.h"
#include "formats/safetensors.h"
#include "ops/rows.h"

namespace eaglet {
namespace {

constexpr std::int64_t kSmallestPart = 65536;  // elements of an AdamW tensor that are worth a shard's share

bool name_contains(const ParameterInfo& parameter, const char* part) {
  return parameter.name.find(part) != std::string::npos;
}

}  // namespace

bool learns_by_muon(const ParameterInfo& p) {
  return p.trainable && p.shape.size() == 2 && p.shape[0] > 1 && p.shape[1] > 1 &&
         !name_contains(p, "lm_head") && !name_contains(p, "embed_tokens");
}

Optimizer::Optimizer(const OptimizerOptions& options, std::vector<ParameterInfo> table, int shard, int shards,
                     bool with_memory)
    : options_(options), table_(std::move(table)), shard_(shard) {
  plan_pieces(shards);
  for (Piece& piece : pieces_) {
    state_elements_ += static_cast<std::uint64_t>(piece.elements) * (piece.muon ? 1 : 2);
    if (piece.owner != shard_) continue;
    piece.first_at = moment_floats_;
    moment_floats_ += piece.elements;
    if (piece.muon) {
      const auto& shape = table_[piece.tensor].shape;
      scratch_floats_ = std::max(scratch_floats_, muon_scratch_floats(shape[0], shape[1]));
    } else {
      piece.second_at = moment_floats_;
      moment_floats_ += piece.elements;
    }
  }
  bytes_ = sizeof(float) * static_cast<std::uint64_t>(moment_floats_ + scratch_floats_);
  if (!with_memory) return;
  (void)moments_.take(moment_floats_, nullptr);
  (void)scratch_.take(scratch_floats_, nullptr);
}

Status Optimizer::place_on(Accelerator& device) {
  EAGLET_RETURN_IF_ERROR(moments_.take(moment_floats_, &device));
  EAGLET_RETURN_IF_ERROR(scratch_.take(scratch_floats_, &device));
  if (moment_floats_ > 0) zero_rows(moment_floats_, 1, moments_.data());
  return {};
}

// Muon needs whole matrices; the rest is cut evenly. Each piece goes to the shard with the least so far.
void Optimizer::plan_pieces(int shards) {
  for (std::size_t t = 0; t < table_.size(); ++t) {
    const ParameterInfo& parameter = table_[t];
    if (!parameter.trainable) continue;
    const bool muon = options_.use_muon && learns_by_muon(parameter);
    const std::int64_t parts =
        muon ? 1 : std::clamp<std::int64_t>(parameter.elements / kSmallestPart, 1, shards);
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t begin = parameter.elements * i / parts, end = parameter.elements * (i + 1) / parts;
      pieces_.push_back({t, begin, end - begin, muon, 0, -1, -1});
    }
  }
  std::vector<std::size_t> by_size(pieces_.size());
  for (std::size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  const auto weight = [&](std::size_t i) { return pieces_[i].elements * (pieces_[i].muon ? 1 : 2); };
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(shards), 0);
  for (const std::size_t i : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    pieces_[i].owner = static_cast<int>(least - load.begin());
    *least += weight(i);
  }
}

void Optimizer::update(float* weights, const float* gradients, double gradient_scale, double learning_rate) {
  ++updates_;
  for (const Piece& piece : pieces_) {
    if (piece.owner != shard_) continue;
    const ParameterInfo& parameter = table_[piece.tensor];
    const std::int64_t at = parameter.offset + piece.begin;
    float* first = moments_.data() + piece.first_at;
    if (piece.muon)
      muon(parameter.shape[0], parameter.shape[1], weights + at, gradients + at, first, gradient_scale,
           learning_rate * options_.muon_lr_ratio, options_.muon, scratch_.data());
    else
      adamw(piece.elements, weights + at, gradients + at, first, moments_.data() + piece.second_at,
            gradient_scale, learning_rate, updates_, options_.adamw);
  }
}

// Devices send one piece after another, and the host waits once.
Status Optimizer::share_weights(Comm& comm, float* weights) const {
  DeviceRanks* devices = moments_.on_device() ? comm.device_ranks() : nullptr;
  for (const Piece& piece : pieces_) {
    float* at = weights + table_[piece.tensor].offset + piece.begin;
    const std::int64_t bytes = piece.elements * static_cast<std::int64_t>(sizeof(float));
    EAGLET_RETURN_IF_ERROR(devices != nullptr ? devices->broadcast(bytes, at, piece.owner)
                                              : comm.broadcast(bytes, at, piece.owner));
  }
  return devices == nullptr ? Status() : devices->wait();
}

std::vector<Optimizer::StateTensor> Optimizer::state_tensors() const {
  std::vector<StateTensor> states;
  for (const bool second : {false, true})
    for (std::size_t t = 0; t < table_.size(); ++t) {
      if (!table_[t].trainable) continue;
      const bool muon = options_.use_muon && learns_by_muon(table_[t]);
      if (muon && second) continue;
      const char* prefix = muon ? "momentum_buffer." : second ? "exp_avg_sq." : "exp_avg.";
      states.push_back({prefix + table_[t].name, t, second});
    }
  return states;
}

// In place, or brought to `buffer` from a device.
const float* Optimizer::moments_on_host(const Piece& piece, bool second, std::vector<float>* buffer) const {
  if (!moments_.on_device()) return moments_.data() + place(piece, second);
  buffer->resize(static_cast<std::size_t>(piece.elements));
  moments_.read(place(piece, second), piece.elements, buffer->data());
  return buffer->data();
}

// Rank 0 asks for one tensor after the other; the others send their pieces in the same order.
Status Optimizer::send_pieces(Comm& comm) const {
  std::vector<float> buffer;
  for (const StateTensor& state : state_tensors())
    for (const Piece& piece : pieces_)
      if (piece.tensor == state.tensor && piece.owner == shard_)
        EAGLET_RETURN_IF_ERROR(comm.send(piece.elements * static_cast<std::int64_t>(sizeof(float)),
                                         moments_on_host(piece, state.second, &buffer), 0));
  return {};
}

// Where the whole state lies: in place when this rank has it in one piece on the host, else put together in
// *buffer.
Result<const float*> Optimizer::gather(const StateTensor& state, Comm& comm,
                                       std::vector<float>* buffer) const {
  for (const Piece& piece : pieces_)
    if (piece.tensor == state.tensor && piece.owner == shard_ &&
        piece.elements == table_[state.tensor].elements)
      return moments_on_host(piece, state.second, buffer);
  buffer->resize(static_cast<std::size_t>(table_[state.tensor].elements));
  for (const Piece& piece : pieces_) {
    if (piece.tensor != state.tensor) continue;
    float* to = buffer->data() + piece.begin;
    if (piece.owner == shard_)
      moments_.read(place(piece, state.second), piece.elements, to);
    else
      EAGLET_RETURN_IF_ERROR(
          comm.receive(piece.elements * static_cast<std::int64_t>(sizeof(float)), to, piece.owner));
  }
  return buffer->data();
}

Status Optimizer::write(const std::string& path, Comm& comm) const {
  if (shard_ != 0) return send_pieces(comm);
  const std::vector<StateTensor> states = state_tensors();
  std::vector<TensorView> tensors;
  for (const StateTensor& state : states)
    tensors.push_back({state.name, Dtype::kF32, table_[state.tensor].shape, nullptr});
  std::vector<float> buffer;
  const auto bytes_of = [&](std::size_t i) -> Result<const void*> {
    EAGLET_ASSIGN_OR_RETURN(const float* whole, gather(states[i], comm, &buffer));
    return static_cast<const void*>(whole);
  };
  return write_safetensors(
      path, tensors,
      {{"updates", std::to_string(updates_)}, {"optimizer", options_.use_muon ? "muon" : "adamw"}}, bytes_of);
}

Status Optimizer::read(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  const auto written_by = file.metadata().find("optimizer");
  const std::string theirs = written_by == file.metadata().end() ? "adamw" : written_by->second;
  const std::string ours = options_.use_muon ? "muon" : "adamw";
  if (theirs != ours)
    return Status(StatusCode::kConfig, fmt::format("the state is of {}, not of {}", theirs, ours), path,
                  "give --optimizer " + theirs);
  const auto updates = file.metadata().find("updates");
  if (updates == file.metadata().end())
    return Status(StatusCode::kDataLoss, "no count of updates in the metadata", path);
  const std::string& text = updates->second;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), updates_);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || updates_ < 0)
    return Status(StatusCode::kDataLoss, "the count of updates is not a number: " + text, path);
  for (const StateTensor& state : state_tensors()) {
    const SafetensorsEntry* entry = file.find(state.name);
    if (entry == nullptr) return Status(StatusCode::kDataLoss, "missing tensor " + state.name, path);
    if (entry->dtype != Dtype::kF32 || entry->shape != table_[state.tensor].shape)
      return Status(StatusCode::kDataLoss, "tensor " + state.name + " does not fit the draft", path);
    for (const Piece& piece : pieces_)
      if (piece.tensor == state.tensor && piece.owner == shard_)
        moments_.write(place(piece, state.second), piece.elements,
                       reinterpret_cast<const float*>(file.data(*entry)) + piece.begin);
  }
  return {};
}

}  // namespace eaglet
