#include "generate/native_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "device/bf16_rounding.h"
#include "device/threads.h"
#include "generate/native_sequence.h"
#include "generate/shared_beginning.h"

namespace eaglet {
namespace {

using Sequence = NativeSequence;
using SequencePointer = NativeSequencePointer;
using NextRequest = std::function<std::optional<GenerationRequest>()>;

class NativeGenerator : public Generator {
 public:
  NativeGenerator(ResidentTarget* target, const NativeGeneratorOptions& options)
      : target_(target), options_(options) {
    if (options.draft != nullptr) speculation_.emplace(options.draft, options.draft_length);
  }

  Status run(const NextRequest& next, const std::function<Status(const GeneratedAnswer&)>& done,
             const std::function<Status(std::int64_t, int)>& tick) override {
    running_.clear();
    finished_.clear();
    waiting_.reset();
    used_bytes_ = 0;
    drained_ = false;
    std::int64_t tokens = 0;
    for (;;) {
      propose();  // before others join: they may take over what the draft has of a shared beginning
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
      const std::int64_t longest = prompt + waiting_->max_tokens;
      const std::uint64_t bytes = bytes_of(longest);
      if (bytes > options_.cache_bytes) return no_room(longest, bytes);
      if (!make_room(bytes)) return {};
      const SharedBeginning shared = beginning_of(waiting_->prompt);
      if (worth_waiting(running_, waiting_->prompt, shared.rows)) return {};
      if (rows > 0 && rows + prompt - shared.rows > options_.prompt_rows) return {};
      used_bytes_ += bytes;
      rows += prompt - shared.rows;
      running_.push_back(begin(std::move(*waiting_), shared, longest, bytes));
      waiting_.reset();
    }
    return {};
  }

  // Finished sequences give way, the oldest first.
  bool make_room(std::uint64_t bytes) {
    std::size_t given = 0;
    while (used_bytes_ + bytes > options_.cache_bytes && given < finished_.size())
      used_bytes_ -= finished_[given++]->cache_bytes;
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(given));
    return used_bytes_ + bytes <= options_.cache_bytes;
  }

  SharedBeginning beginning_of(const std::vector<std::int32_t>& prompt) const {
    const SharedBeginning running = shared_beginning(running_, prompt),
                          finished = shared_beginning(finished_, prompt);
    return finished.rows > running.rows ? finished : running;
  }

  std::uint64_t bytes_of(std::int64_t longest) const {
    const bool bf16 = target_->compute_type() == ComputeType::kBf16;
    return SequenceCache::bytes(target_->config(), bf16, longest) + 2 * kept_elements(longest) +
           (speculation_ ? speculation_->bytes(longest) : 0);
  }

  Status no_room(std::int64_t longest, std::uint64_t bytes) const {
    return Status(StatusCode::kNoSpace,
                  fmt::format("a sequence of {} tokens needs {} of cache, {} are left beside the weights",
                              longest, human_bytes(static_cast<double>(bytes)),
                              human_bytes(static_cast<double>(options_.cache_bytes))),
                  {}, "give more --memory, or a smaller --max-tokens");
  }

  SequencePointer begin(GenerationRequest request, const SharedBeginning& shared, std::int64_t longest,
                        std::uint64_t bytes) {
    TokenSampler sampler(options_.sampling, request.seed, request.prompt);
    GeneratedAnswer answer;
    answer.tag = request.tag;
    answer.states.reserve(kept_elements(longest));
    auto sequence = std::make_unique<Sequence>(Sequence{
        std::move(request), std::move(answer), target_->make_cache(longest), std::move(sampler), bytes});
    if (speculation_) {
      sequence->speculated = speculation_->begin(longest);
      sequence->answer.drafts.accepted_at.resize(static_cast<std::size_t>(options_.draft_length));
    }
    take_over(shared, options_.kept_layers.empty() ? 0 : row_elements(), sequence.get());
    return sequence;
  }

  // The draft's tokens for every sequence that has begun to answer and may have more than one token yet.
  void propose() {
    if (!speculation_) return;
    std::vector<Speculation::Asking> asking;
    for (const SequencePointer& s : running_) {
      s->speculated->tokens.clear();
      const std::int64_t answered = s->answer_tokens();
      const std::int64_t most = std::min(options_.draft_length, s->request.max_tokens - answered - 1);
      if (answered == 0 || s->complete || most < 1) continue;
      asking.push_back({&*s->speculated, &s->sampler, following(*s), most});
    }
    speculation_->draft(asking);
  }

  /// The token after each row that the target has seen and the draft has not.
  static std::vector<std::int32_t> following(const Sequence& s) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = s.speculated->cache.length() + 1; i < s.tokens(); ++i) tokens.push_back(s.token(i));
    return tokens;
  }

  NextTokens next_of(Sequence& s) const {
    if (s.answer.tokens.empty())
      return {&s.cache, {s.request.prompt.begin() + s.cache.length(), s.request.prompt.end()}, 1};
    NextTokens next{&s.cache, {s.answer.tokens.back()}, s.complete ? 0 : 1};
    if (!s.speculated || s.complete) return next;
    for (const DraftedToken& token : s.speculated->tokens) next.ids.push_back(token.target_id);
    next.outputs = static_cast<std::int64_t>(next.ids.size());
    return next;
  }

  Status step() {
    next_.clear();
    for (const SequencePointer& s : running_) next_.push_back(next_of(*s));
    if (options_.kept_layers.empty() && !speculation_) return target_->step(next_);
    for (std::size_t i = 0; i < next_.size(); ++i) {
      std::vector<std::uint16_t>& states = running_[i]->answer.states;
      if (!options_.kept_layers.empty()) states.resize(states.size() + next_[i].ids.size() * row_elements());
      if (speculation_)
        speculation_->expect_rows(static_cast<std::int64_t>(next_[i].ids.size()), &*running_[i]->speculated);
    }
    return target_->step(next_,
                         [this](std::size_t first, std::size_t count, std::int64_t layers, const float* x) {
                           if (!options_.kept_layers.empty()) keep_states(first, count, layers, x);
                           if (speculation_) capture(first, count, layers, x);
                         });
  }

  void capture(std::size_t first, std::size_t count, std::int64_t layers, const float* x) {
    for (std::size_t i = first; i < first + count; ++i) {
      const auto rows = static_cast<std::int64_t>(next_[i].ids.size());
      speculation_->capture(layers, rows, x, &*running_[i]->speculated);
      x += rows * target_->config().hidden;
    }
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

  // The tokens of every sequence that wanted logits: one, or as many more as its drafted ones are right.
  std::int64_t choose_tokens() {
    std::vector<std::int64_t> first_output;
    std::int64_t outputs = 0;
    for (const NextTokens& next : next_) {
      first_output.push_back(outputs);
      outputs += next.outputs;
    }
    std::vector<std::int64_t> chosen(running_.size());
    parallel_items(static_cast<std::int64_t>(running_.size()), [&](std::int64_t i, int) {
      const auto at = static_cast<std::size_t>(i);
      if (next_[at].outputs > 0) chosen[at] = choose_of(running_[at].get(), first_output[at]);
    });
    return std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0});
  }

  std::int64_t choose_of(Sequence* s, std::int64_t output) {
    const std::int64_t before = s->tokens();
    const std::size_t drafted = s->speculated ? s->speculated->tokens.size() : 0;
    std::size_t accepted = 0;
    for (bool goes_on = true; goes_on;) {
      float* logits = target_->logits(output + static_cast<std::int64_t>(accepted));
      const DraftedToken* proposed = accepted < drafted ? &s->speculated->tokens[accepted] : nullptr;
      const std::int32_t token = proposed == nullptr ? s->sampler.choose(logits, target_->config().vocab)
                                                     : s->sampler.judge(logits, target_->config().vocab,
                                                                        *proposed, speculation_->vocab());
      take(token, s);
      goes_on = proposed != nullptr && token == proposed->target_id;
      accepted += goes_on;
      goes_on = goes_on && !s->complete;
    }
    if (s->speculated) count_and_forget(drafted, accepted, s);
    return s->tokens() - before;
  }

  void take(std::int32_t token, Sequence* s) const {
    s->answer.tokens.push_back(token);
    s->answer.stopped = options_.ends(token);
    s->complete =
        s->answer.stopped || static_cast<std::int64_t>(s->answer.tokens.size()) >= s->request.max_tokens;
  }

  // Rows of refused tokens leave the cache and what was captured of them.
  void count_and_forget(std::size_t drafted, std::size_t accepted, Sequence* s) const {
    if (drafted == 0 && s->answer.tokens.size() == 1) return;  // the prompt's pass
    DraftCounts& counts = s->answer.drafts;
    ++counts.passes;
    counts.drafted += static_cast<std::int64_t>(drafted);
    counts.accepted += static_cast<std::int64_t>(accepted);
    for (std::size_t i = 0; i < accepted; ++i) ++counts.accepted_at[i];
    const auto refused = static_cast<std::int64_t>(drafted - accepted);
    s->cache.cut(s->cache.length() - refused);
    speculation_->forget_rows(refused, &*s->speculated);
    if (!options_.kept_layers.empty())
      s->answer.states.resize(s->answer.states.size() - static_cast<std::size_t>(refused) * row_elements());
  }

  // Complete answers go out, after their last token went through the target when its states are wanted.
  Status hand_out(const std::function<Status(const GeneratedAnswer&)>& done) {
    for (SequencePointer& s : running_) {
      if (!s->complete || (!options_.kept_layers.empty() && s->cache.length() < s->tokens())) continue;
      EAGLET_RETURN_IF_ERROR(done(s->answer));
      finished_.push_back(std::move(s));
    }
    std::erase(running_, nullptr);
    forget_old();
    return {};
  }

  // A prompt may go on where a finished answer ended, or share its beginning.
  void forget_old() {
    constexpr std::size_t kFew = 16;
    while (finished_.size() > std::max(kFew, static_cast<std::size_t>(options_.parallel))) {
      used_bytes_ -= finished_.front()->cache_bytes;
      finished_.erase(finished_.begin());
    }
  }

  ResidentTarget* target_;
  NativeGeneratorOptions options_;
  std::optional<Speculation> speculation_;
  std::vector<SequencePointer> running_, finished_;
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
