#include "generate/native_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "device/bf16_rounding.h"
#include "device/threads.h"
#include "generate/token_sampler.h"

namespace eaglet {
namespace {

struct Sequence {
  GenerationRequest request;
  GeneratedAnswer answer;
  SequenceCache cache;
  TokenSampler sampler;
  std::uint64_t cache_bytes = 0;
  bool complete = false;  // all tokens are there; the last one may still have to go through the target
  std::int64_t tokens() const {
    return static_cast<std::int64_t>(request.prompt.size() + answer.tokens.size());
  }
};
using SequencePointer = std::unique_ptr<Sequence>;
using NextRequest = std::function<std::optional<GenerationRequest>()>;

class NativeGenerator : public Generator {
 public:
  NativeGenerator(ResidentTarget* target, const NativeGeneratorOptions& options)
      : target_(target), options_(options) {}

  Status run(const NextRequest& next, const std::function<Status(const GeneratedAnswer&)>& done,
             const std::function<Status(std::int64_t, int)>& tick) override {
    running_.clear();
    waiting_.reset();
    used_bytes_ = 0;
    drained_ = false;
    std::int64_t tokens = 0;
    for (;;) {
      EAGLET_RETURN_IF_ERROR(admit(next));
      if (running_.empty()) return {};
      EAGLET_RETURN_IF_ERROR(step());
      tokens += choose_tokens();
      const auto busy = static_cast<int>(running_.size());
      EAGLET_RETURN_IF_ERROR(hand_out(done));
      EAGLET_RETURN_IF_ERROR(tick(tokens, busy));
    }
  }

 private:
  // New sequences as long as there are places, room in the caches, and rows in the step.
  Status admit(const NextRequest& next) {
    std::int64_t rows = 0;
    while (running_.size() < static_cast<std::size_t>(options_.parallel)) {
      if (!waiting_ && !drained_) {
        waiting_ = next();
        drained_ = !waiting_;
      }
      if (!waiting_) return {};
      const auto prompt = static_cast<std::int64_t>(waiting_->prompt.size());
      if (rows > 0 && rows + prompt > options_.prompt_rows) return {};
      const std::int64_t longest = prompt + waiting_->max_tokens;
      const bool bf16 = target_->compute_type() == ComputeType::kBf16;
      const std::uint64_t bytes =
          SequenceCache::bytes(target_->config(), bf16, longest) + 2 * kept_elements(longest);
      if (bytes > options_.cache_bytes) return no_room(longest, bytes);
      if (used_bytes_ + bytes > options_.cache_bytes) return {};
      used_bytes_ += bytes;
      rows += prompt;
      running_.push_back(begin(std::move(*waiting_), longest, bytes));
      waiting_.reset();
    }
    return {};
  }

  Status no_room(std::int64_t longest, std::uint64_t bytes) const {
    return Status(StatusCode::kNoSpace,
                  fmt::format("a sequence of {} tokens needs {} of cache, {} are left beside the weights",
                              longest, human_bytes(static_cast<double>(bytes)),
                              human_bytes(static_cast<double>(options_.cache_bytes))),
                  {}, "give more --memory, or a smaller --max-tokens");
  }

  SequencePointer begin(GenerationRequest request, std::int64_t longest, std::uint64_t bytes) {
    TokenSampler sampler(options_.sampling, request.seed, request.prompt);
    GeneratedAnswer answer;
    answer.tag = request.tag;
    answer.states.reserve(kept_elements(longest));
    return std::make_unique<Sequence>(Sequence{std::move(request), std::move(answer),
                                               target_->make_cache(longest), std::move(sampler), bytes,
                                               false});
  }

  Status step() {
    next_.clear();
    for (const SequencePointer& s : running_) {
      if (s->answer.tokens.empty())
        next_.push_back({&s->cache, s->request.prompt, true});
      else
        next_.push_back({&s->cache, {s->answer.tokens.back()}, !s->complete});
    }
    if (options_.kept_layers.empty()) return target_->step(next_);
    for (std::size_t i = 0; i < next_.size(); ++i)
      running_[i]->answer.states.resize(running_[i]->answer.states.size() +
                                        next_[i].ids.size() * row_elements());
    return target_->step(next_, [this](std::size_t first, std::size_t count, std::int64_t layers,
                                       const float* x) { keep_states(first, count, layers, x); });
  }

  /// Numbers of the kept states of so many tokens.
  std::size_t kept_elements(std::int64_t tokens) const {
    return options_.kept_layers.empty() ? 0 : static_cast<std::size_t>(tokens) * row_elements();
  }
  std::size_t slots() const { return options_.kept_layers.size() + 1; }
  std::size_t row_elements() const { return slots() * static_cast<std::size_t>(target_->config().hidden); }

  // Of sequences [first, first + count); their rows are at x, one sequence after the other.
  void keep_states(std::size_t first, std::size_t count, std::int64_t layers, const float* x) {
    const auto found = std::find(options_.kept_layers.begin(), options_.kept_layers.end(), layers);
    if (found != options_.kept_layers.end())
      keep_slot(first, count, static_cast<std::size_t>(found - options_.kept_layers.begin()), x);
    if (layers == target_->config().num_layers) keep_slot(first, count, slots() - 1, x);
  }

  void keep_slot(std::size_t first, std::size_t count, std::size_t slot, const float* x) {
    const auto hidden = static_cast<std::size_t>(target_->config().hidden);
    for (std::size_t i = first; i < first + count; ++i) {
      std::vector<std::uint16_t>& states = running_[i]->answer.states;
      std::uint16_t* to =
          states.data() + states.size() - next_[i].ids.size() * row_elements() + slot * hidden;
      for (std::size_t row = 0; row < next_[i].ids.size(); ++row, x += hidden, to += row_elements())
        round_row_to_bf16(static_cast<std::int64_t>(hidden), x, to);
    }
  }

  // A token for every sequence that wanted logits.
  std::int64_t choose_tokens() {
    std::vector<Sequence*> asking;
    for (const SequencePointer& s : running_)
      if (!s->complete) asking.push_back(s.get());
    parallel_items(static_cast<std::int64_t>(asking.size()), [&](std::int64_t i, int) {
      Sequence& s = *asking[static_cast<std::size_t>(i)];
      s.answer.tokens.push_back(s.sampler.choose(target_->logits(i), target_->config().vocab));
    });
    return static_cast<std::int64_t>(asking.size());
  }

  // Complete answers go out, after their last token went through the target when its states are wanted.
  Status hand_out(const std::function<Status(const GeneratedAnswer&)>& done) {
    for (SequencePointer& s : running_) {
      const bool was_complete = s->complete;
      s->answer.stopped = options_.ends(s->answer.tokens.back());
      s->complete =
          s->answer.stopped || static_cast<std::int64_t>(s->answer.tokens.size()) >= s->request.max_tokens;
      if (!s->complete || (!options_.kept_layers.empty() && !was_complete)) continue;
      EAGLET_RETURN_IF_ERROR(done(s->answer));
      used_bytes_ -= s->cache_bytes;
      s.reset();
    }
    std::erase(running_, nullptr);
    return {};
  }

  ResidentTarget* target_;
  NativeGeneratorOptions options_;
  std::vector<SequencePointer> running_;
  std::vector<NextTokens> next_;  // of running_, in its order
  std::optional<GenerationRequest> waiting_;
  std::uint64_t used_bytes_ = 0;
  bool drained_ = false;
};

}  // namespace

std::unique_ptr<Generator> make_native_generator(ResidentTarget* target,
                                                 const NativeGeneratorOptions& options) {
  return std::make_unique<NativeGenerator>(target, options);
}

}  // namespace eaglet
