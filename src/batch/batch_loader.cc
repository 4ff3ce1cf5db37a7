#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "base/clock.h"
#include "batch/loader.h"

namespace eaglet {
namespace {

using Batch = std::unique_ptr<PackedBatch>;

/// Hands out the document lists of all batches to come, epoch after epoch. Not thread-safe.
class Order {
 public:
  Order(PackPlan plan, std::int64_t epoch, std::int64_t batch, const BatchShare& share)
      : plan_(std::move(plan)),
        share_(share),
        epoch_(epoch),
        next_(static_cast<std::size_t>(batch + share.rank)),
        batches_(plan_.epoch(epoch)) {}
  std::vector<std::size_t> next() {
    if (next_ >= batches_.size()) {
      batches_ = plan_.epoch(++epoch_);
      next_ = static_cast<std::size_t>(share_.rank);
    }
    std::vector<std::size_t> documents = batches_[next_];
    next_ += static_cast<std::size_t>(share_.ranks);
    return documents;
  }

 private:
  PackPlan plan_;
  BatchShare share_;
  std::int64_t epoch_;
  std::size_t next_;
  std::vector<std::vector<std::size_t>> batches_;
};

/// Workers take batch numbers in order and fill them side by side; next() hands them out in order.
///
///   numbers   ... 4 | 5  6  7  8 | 9 ...        delivered_ = 5 (next() waits for it)
///                   | ready or   |              taken_ = 9
///                   | being filled              at most `depth_` between the two: that bounds the memory
class ThreadedLoader : public BatchLoader {
 public:
  ThreadedLoader(const StoreReader& store, Order order, std::int64_t max_seq_len, int num_workers,
                 BatchStates states)
      : store_(store),
        states_(states),
        order_(std::move(order)),
        max_seq_len_(max_seq_len),
        depth_(2 * static_cast<std::uint64_t>(num_workers)) {
    for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this] { work(); });
  }

  ~ThreadedLoader() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Result<Batch> next() override {
    const double since = monotonic_seconds();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_.contains(delivered_); });
    Result<Batch> batch = std::move(ready_.extract(delivered_).mapped());
    ++delivered_;
    waited_seconds_ += monotonic_seconds() - since;
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

  void recycle(Batch batch) override {
    const std::lock_guard lock(mutex_);
    // depth_ ahead and one in the caller's hands: more are never alive, unless the caller brings its own.
    if (batch && free_.size() <= depth_) free_.push_back(std::move(batch));
  }

  double waited_seconds() const override {
    const std::lock_guard lock(mutex_);
    return waited_seconds_;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || taken_ < delivered_ + depth_; });
      if (stop_) return;
      const std::uint64_t number = taken_++;
      const std::vector<std::size_t> documents = order_.next();
      Batch batch;
      if (!free_.empty()) {
        batch = std::move(free_.back());
        free_.pop_back();
      }
      lock.unlock();
      Result<Batch> filled = fill(std::move(batch), documents);
      lock.lock();
      ready_.emplace(number, std::move(filled));
      changed_.notify_all();
    }
  }

  Result<Batch> fill(Batch batch, const std::vector<std::size_t>& documents) const {
    try {
      if (!batch) batch = std::make_unique<PackedBatch>();
      EAGLET_RETURN_IF_ERROR(fill_batch(store_, documents, max_seq_len_, batch.get(), states_));
      return batch;
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::kNoSpace,
                    fmt::format("there is no memory for a batch of {} rows", max_seq_len_), "",
                    "use a smaller --max-seq-len or fewer --num-workers");
    }
  }

  const StoreReader& store_;
  const BatchStates states_;
  Order order_;  // guarded by mutex_, like all below
  const std::int64_t max_seq_len_;
  const std::uint64_t depth_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::uint64_t taken_ = 0, delivered_ = 0;
  std::map<std::uint64_t, Result<Batch>> ready_;
  std::vector<Batch> free_;
  double waited_seconds_ = 0;
  std::vector<std::thread> workers_;  // last: they start when everything above stands
};

}  // namespace

Result<std::unique_ptr<BatchLoader>> BatchLoader::start(const StoreReader& store, const PackPlan& plan,
                                                        std::int64_t max_seq_len, int num_workers,
                                                        std::int64_t first_epoch, std::int64_t first_batch,
                                                        const BatchShare& share, BatchStates states) {
  if (num_workers < 1 || num_workers > 1024)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} loader threads are not possible", num_workers), "",
                  "use --num-workers 1 or more (2 is usual)");
  if (first_epoch < 0 || first_batch < 0 || first_batch > plan.report().batches || plan.report().batches < 1)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("there is no batch {} in epoch {}: an epoch has {}", first_batch, first_epoch,
                              plan.report().batches));
  if (share.ranks < 1 || share.rank < 0 || share.rank >= share.ranks || share.rank >= plan.report().batches)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("rank {} of {} gets none of the {} batches of an epoch", share.rank,
                              share.ranks, plan.report().batches),
                  "", "start fewer ranks, or give a smaller --max-seq-len for more batches");
  return std::unique_ptr<BatchLoader>(std::make_unique<ThreadedLoader>(
      store, Order(plan, first_epoch, first_batch, share), max_seq_len, num_workers, states));
}

}  // namespace eaglet
