#include "verifier/generator.h"

#include <llama.h>

#include <algorithm>

#include "verifier/context.h"

namespace eaglet {

void DraftCounts::add(const DraftCounts& more) {
  passes += more.passes;
  drafted += more.drafted;
  accepted += more.accepted;
  accepted_at.resize(std::max(accepted_at.size(), more.accepted_at.size()));
  for (std::size_t i = 0; i < more.accepted_at.size(); ++i) accepted_at[i] += more.accepted_at[i];
}
namespace {

constexpr std::int32_t kBatchTokens = 512;

struct FreeSampler {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPointer = std::unique_ptr<llama_sampler, FreeSampler>;

// The order that sampling.h tells. nullptr: the likeliest token, which needs no chain.
SamplerPointer make_sampler(const SamplingOptions& options, const GenerationRequest& request,
                            std::int32_t vocab) {
  if (options.temperature <= 0 && options.repetition_penalty == 1) return nullptr;
  SamplerPointer chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain.get(), sampler); };
  if (options.repetition_penalty != 1) {
    const auto all =
        static_cast<std::int32_t>(request.prompt.size()) + static_cast<std::int32_t>(request.max_tokens);
    add(llama_sampler_init_penalties(vocab, all, static_cast<float>(options.repetition_penalty), 0, 0));
    for (const std::int32_t token : request.prompt) llama_sampler_accept(chain.get(), token);
  }
  if (options.temperature <= 0) {
    add(llama_sampler_init_greedy());
    return chain;
  }
  add(llama_sampler_init_temp(static_cast<float>(options.temperature)));
  if (options.min_p > 0) add(llama_sampler_init_min_p(static_cast<float>(options.min_p), 1));
  if (options.top_k > 0) add(llama_sampler_init_top_k(static_cast<std::int32_t>(options.top_k)));
  if (options.top_p < 1) add(llama_sampler_init_top_p(static_cast<float>(options.top_p), 1));
  add(llama_sampler_init_dist(request.seed));
  return chain;
}

struct Slot {
  bool busy = false;
  std::size_t fed = 0;           // prompt tokens already in the cache or the current batch
  std::int32_t output_row = -1;  // row of the current batch whose logits belong to this slot
  GenerationRequest request;
  GeneratedAnswer answer;
  SamplerPointer sampler;
  std::int32_t length() const { return static_cast<std::int32_t>(fed + answer.tokens.size()); }
};

class LlamaGenerator : public Generator {
 public:
  LlamaGenerator(const Target& target, const GeneratorOptions& options, ContextPointer context)
      : target_(target),
        options_(options),
        context_(std::move(context)),
        batch_(kBatchTokens),
        slots_(static_cast<std::size_t>(options.parallel)) {
    vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(target.model()));
  }

  Status run(const std::function<std::optional<GenerationRequest>()>& next,
             const std::function<Status(const GeneratedAnswer&)>& done,
             const std::function<Status(std::int64_t, int)>& tick) override {
    std::int64_t tokens = 0;
    while (const int busy = refill(next)) {
      fill_batch();
      EAGLET_RETURN_IF_ERROR(decode(context_.get(), batch_, target_.facts().path));
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!slots_[i].busy || slots_[i].output_row < 0) continue;
        take_token(&slots_[i]);
        ++tokens;
        if (finished(slots_[i])) {
          EAGLET_RETURN_IF_ERROR(done(slots_[i].answer));
          free_slot(i);
        }
      }
      EAGLET_RETURN_IF_ERROR(tick(tokens, busy));
    }
    return Status();
  }

 private:
  int refill(const std::function<std::optional<GenerationRequest>()>& next) {
    int busy = 0;
    for (Slot& slot : slots_) {
      if (!slot.busy && !drained_) {
        std::optional<GenerationRequest> request = next();
        drained_ = !request;
        if (request) {
          slot.busy = true;
          slot.fed = 0;
          slot.answer = {request->tag, {}, false, {}};
          slot.sampler = make_sampler(options_.sampling, *request, vocab_);
          slot.request = std::move(*request);
        }
      }
      busy += slot.busy;
    }
    if (busy == 0) drained_ = false;  // ready for another run()
    return busy;
  }

  /// One token of every answering slot, then as much of the new prompts as the batch holds.
  void fill_batch() {
    batch_.clear();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      slot.output_row = -1;
      if (!slot.busy || slot.answer.tokens.empty()) continue;
      slot.output_row =
          batch_.add(slot.answer.tokens.back(), slot.length() - 1, static_cast<std::int32_t>(i), true);
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (!slot.busy || !slot.answer.tokens.empty()) continue;
      while (slot.fed < slot.request.prompt.size() && batch_.room() > 0) {
        const bool last = slot.fed + 1 == slot.request.prompt.size();
        const std::int32_t row =
            batch_.add(slot.request.prompt[slot.fed], static_cast<std::int32_t>(slot.fed),
                       static_cast<std::int32_t>(i), last);
        ++slot.fed;
        if (last) slot.output_row = row;
      }
    }
  }

  void take_token(Slot* slot) {
    std::int32_t token = 0;
    if (slot->sampler != nullptr) {
      token = llama_sampler_sample(slot->sampler.get(), context_.get(), slot->output_row);
    } else {
      const float* logits = llama_get_logits_ith(context_.get(), slot->output_row);
      token = static_cast<std::int32_t>(std::max_element(logits, logits + vocab_) - logits);
    }
    slot->answer.tokens.push_back(token);
    slot->answer.stopped = target_.ends(token);
  }

  bool finished(const Slot& slot) const {
    return slot.answer.stopped ||
           static_cast<std::int64_t>(slot.answer.tokens.size()) >= slot.request.max_tokens;
  }

  void free_slot(std::size_t i) {
    llama_memory_seq_rm(llama_get_memory(context_.get()), static_cast<llama_seq_id>(i), -1, -1);
    slots_[i].busy = false;
    slots_[i].sampler.reset();
  }

  const Target& target_;
  GeneratorOptions options_;
  ContextPointer context_;
  TokenBatch batch_;
  std::vector<Slot> slots_;
  std::int32_t vocab_ = 0;
  bool drained_ = false;
};

}  // namespace

Result<std::unique_ptr<Generator>> Generator::create(const Target& target, const GeneratorOptions& options) {
  GeneratorOptions fixed = options;
  fixed.parallel = std::clamp(options.parallel, 1, static_cast<int>(llama_max_parallel_sequences()));
  llama_context_params params = llama_context_default_params();
  // Every sequence has its own cache, so that a token attends over its own sequence only (a shared cache
  // costs attention over all of them).
  const auto per_sequence = static_cast<std::uint32_t>((options.longest_sequence + 255) / 256 * 256);
  params.n_ctx = per_sequence * static_cast<std::uint32_t>(fixed.parallel);
  params.n_seq_max = static_cast<std::uint32_t>(fixed.parallel);
  params.kv_unified = false;
  params.n_batch = kBatchTokens;
  params.n_ubatch = kBatchTokens;
  params.n_threads = params.n_threads_batch = target.threads();
  params.no_perf = true;
  EAGLET_ASSIGN_OR_RETURN(ContextPointer context, make_context(target.model(), params, target.facts().path));
  return std::unique_ptr<Generator>(new LlamaGenerator(target, fixed, std::move(context)));
}

}  // namespace eaglet
