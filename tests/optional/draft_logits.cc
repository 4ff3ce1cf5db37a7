// draft_logits DRAFT_DIR TARGET.gguf PACK.safetensors STEPS OUT.safetensors
//
// A developer's tool for comparing with other programs: runs a draft over one packed batch and writes its
// logits of every drafting step, `logits` [STEPS, rows, draft vocabulary] fp32, NaN for rows that were not
// needed. The pack holds in.input_ids, in.document_ids, in.position_ids, in.loss_mask [rows],
// in.aux_hidden_states [rows, A*Ht], in.verifier_last_hidden_states [rows, Ht], after the data shift. Not
// part of the product; built by the target of this name.

#include <cstdio>
#include <cstdlib>

#include "draft/draft_model.h"
#include "formats/safetensors.h"
#include "formats/target_model.h"

namespace {

template <class T>
T must(eaglet::Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

template <class T>
std::vector<T> numbers(const eaglet::SafetensorsFile& file, const std::string& name) {
  const std::vector<std::int64_t> wide = must(file.read_i64(name));
  return std::vector<T>(wide.begin(), wide.end());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace eaglet;
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: draft_logits DRAFT_DIR TARGET.gguf PACK.safetensors STEPS OUT.safetensors\n");
    return 64;
  }
  DraftWeights draft = must(read_draft(argv[1], false, nullptr));
  const std::int64_t draft_vocab = draft.vocab.size();
  const TargetFacts facts = must(read_target_facts(argv[2]));
  const TargetWeights target = must(read_target_weights(argv[2]));
  const SafetensorsFile pack = must(SafetensorsFile::open(argv[3]));
  const auto ids = numbers<std::int32_t>(pack, "in.input_ids"),
             documents = numbers<std::int32_t>(pack, "in.document_ids");
  const auto positions = numbers<std::int32_t>(pack, "in.position_ids");
  const auto mask = numbers<std::uint8_t>(pack, "in.loss_mask");
  const std::vector<float> aux = must(pack.read_f32("in.aux_hidden_states"));
  const std::vector<float> last = must(pack.read_f32("in.verifier_last_hidden_states"));
  TttOptions options;
  options.ttt_steps = std::atoi(argv[4]);
  const auto rows = static_cast<std::int64_t>(ids.size());
  const VerifierTensors verifier{target.embed_tokens.data(), target.final_norm.data(), target.head().data(),
                                 facts.rms_norm_eps};
  auto model = must(DraftModel::create(std::move(draft), verifier, options, rows, false));
  Predictions predictions;
  predictions.with_logits = true;
  must(model->step(
      {rows, ids.data(), documents.data(), positions.data(), mask.data(), aux.data(), last.data()}, false,
      &predictions));
  const TensorView logits{
      "logits", Dtype::kF32, {options.ttt_steps, rows, draft_vocab}, predictions.logits.data()};
  const Status written = write_safetensors(argv[5], {logits});
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.message().c_str());
  return written.ok() ? 0 : 1;
}
