#include "block.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "emulation.h"
#include "fibers.h"
#include "guarded_memory.h"

namespace emulation {
namespace {

enum class State { kReady, kAtBarrier, kAtWarpOperation, kEnded };

// Lanes that meet in a warp operation. Two sets of values take turns: a fast lane may already bring its next
// one while a slow lane still has to read.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  const char* what = nullptr;
  int turn = 0;
  std::array<std::array<std::uint64_t, kLanes>, 2> values;
};

struct Thread {
  Fiber fiber;
  Index3 index;
  int number = 0;
  State state = State::kReady;
  int line = 0;  // of the barrier it waits at
  std::uint64_t preference = 0;
  std::vector<std::function<void()>> copies;  // begun, not waited for
};

// Shared memory by the place that asks for it; kept between launches, for its pages are dear.
struct SharedArray {
  std::unique_ptr<GuardedMemory> memory;
  std::uint64_t block = 0;  // the block it was made fresh for
};

// A thread that can go on. Where threads are preferred the ready ones are a heap, the first preference on
// top.
struct Ready {
  std::uint64_t preference = 0;
  int number = 0;
};
bool later(const Ready& a, const Ready& b) {
  return a.preference > b.preference;
}

struct Machine {
  std::vector<std::unique_ptr<Thread>> threads;
  std::map<std::tuple<const void*, int, std::size_t>, SharedArray> shared;

  // The launch at hand.
  std::string name;
  LaunchShape shape;
  int count = 0;
  bool running = false, failed = false;
  std::vector<Ready> ready;
  std::vector<std::vector<Meeting>> meetings;  // by warp
  Thread* now = nullptr;
  std::uint64_t blocks_run = 0, launches = 0;
  int predicate_count = 0, last_predicate_count = 0;
  int ended = 0;
  bool late_copies = false;
  enum class Order { kAny, kWarps, kThreads } order = Order::kAny;
};

Machine& machine() {
  static Machine* const m = new Machine();
  return *m;
}

void fill_nan(GuardedMemory& memory) {
  std::memset(memory.data(), 0xff, memory.bytes());
}

std::string text(const Index3& i) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "(%u,%u,%u)", i.x, i.y, i.z);
  return buffer;
}

void make_ready(Thread& thread) {
  Machine& m = machine();
  thread.state = State::kReady;
  m.ready.push_back({thread.preference, thread.number});
  if (m.order != Machine::Order::kAny) std::push_heap(m.ready.begin(), m.ready.end(), later);
}

// The next thread: any of the ready ones, or the one that is preferred.
Thread* draw(Machine& m, eaglet::Rng& rng) {
  if (m.order == Machine::Order::kAny)
    std::swap(m.ready[rng.below(m.ready.size())], m.ready.back());
  else
    std::pop_heap(m.ready.begin(), m.ready.end(), later);
  const int number = m.ready.back().number;
  m.ready.pop_back();
  return m.threads[static_cast<std::size_t>(number)].get();
}

void start_block(Machine& m, const std::function<void()>& thread, eaglet::Rng& rng) {
  m.order = static_cast<Machine::Order>(rng.below(3));
  m.late_copies = rng.below(2) == 0;
  m.blocks_run++;
  m.ready.clear();
  m.ended = 0;
  m.predicate_count = 0;
  m.meetings.assign(static_cast<std::size_t>((m.count + kLanes - 1) / kLanes), {});
  std::vector<std::uint64_t> of_warp(m.meetings.size());
  for (std::uint64_t& p : of_warp) p = rng.next() >> 1;
  for (int i = 0; i < m.count; ++i) {
    Thread& t = *m.threads[static_cast<std::size_t>(i)];
    const auto n = static_cast<unsigned>(i);
    t.index = {n % m.shape.block.x, n / m.shape.block.x % m.shape.block.y,
               n / (m.shape.block.x * m.shape.block.y)};
    t.number = i;
    t.preference = m.order == Machine::Order::kWarps
                       ? of_warp[static_cast<std::size_t>(i / kLanes)] + (rng.next() & 0xffff)
                       : rng.next();
    t.copies.clear();
    t.fiber.start(thread);
    make_ready(t);
  }
}

// Nobody can go on: either all wait at one barrier, or somebody waits for ever.
bool release_barrier(Machine& m) {
  const Thread* first = nullptr;
  for (int i = 0; i < m.count; ++i) {
    const Thread& t = *m.threads[static_cast<std::size_t>(i)];
    if (t.state == State::kAtWarpOperation) {
      fault("a warp operation waits for lanes that never come: thread " + text(t.index));
      return false;
    }
    if (t.state == State::kEnded || (first != nullptr && t.line != first->line)) {
      fault("a barrier that not all threads of the block reach: thread " + text(t.index) +
            (t.state == State::kEnded ? " has ended" : " waits at another one"));
      return false;
    }
    first = &t;
  }
  m.last_predicate_count = m.predicate_count;
  m.predicate_count = 0;
  for (int i = 0; i < m.count; ++i) make_ready(*m.threads[static_cast<std::size_t>(i)]);
  return true;
}

bool run_block(Machine& m, const std::function<void()>& thread, eaglet::Rng& rng) {
  start_block(m, thread, rng);
  while (!m.failed && m.ended < m.count) {
    if (m.ready.empty()) {
      if (!release_barrier(m)) return false;
      continue;
    }
    m.now = draw(m, rng);
    position().thread = m.now->index;
    if (m.now->fiber.resume() && !m.failed) {
      m.now->state = State::kEnded;
      m.ended++;
    }
    m.now = nullptr;
  }
  return !m.failed;
}

void wait_in(State state) {
  machine().now->state = state;
  Fiber::pause();
}

Meeting& meeting_of(unsigned mask, const char* what) {
  Machine& m = machine();
  std::vector<Meeting>& of_warp = m.meetings[static_cast<std::size_t>(m.now->number / kLanes)];
  for (Meeting& meeting : of_warp)
    if (meeting.mask == mask) {
      if (meeting.arrived != 0 && meeting.what != what && std::strcmp(meeting.what, what) != 0)
        fault(std::string("lanes of one warp meet in ") + meeting.what + " and " + what);
      meeting.what = what;
      return meeting;
    }
  of_warp.push_back({});
  of_warp.back().mask = mask;
  of_warp.back().what = what;
  return of_warp.back();
}

}  // namespace

bool run_kernel(const std::string& name, const LaunchShape& shape, const std::function<void()>& thread) {
  Machine& m = machine();
  m.name = name;
  m.shape = shape;
  m.failed = false;
  m.running = true;
  position().block_size = shape.block;
  position().grid_size = shape.grid;
  m.count = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
  while (m.threads.size() < static_cast<std::size_t>(m.count))
    m.threads.push_back(std::make_unique<Thread>());
  eaglet::Rng rng(seed(), m.launches++);
  std::vector<std::uint64_t> order(std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  rng.shuffle(order);
  bool whole = true;
  for (const std::uint64_t b : order) {
    position().block = {static_cast<unsigned>(b % shape.grid.x),
                        static_cast<unsigned>(b / shape.grid.x % shape.grid.y),
                        static_cast<unsigned>(b / (std::uint64_t{shape.grid.x} * shape.grid.y))};
    whole = run_block(m, thread, rng);
    if (!whole) break;
  }
  m.running = false;
  return whole;
}

bool in_kernel() {
  return machine().running;
}

std::string where_in_kernel() {
  const Machine& m = machine();
  if (!m.running) return {};
  std::string place = m.name + ", block " + text(position().block);
  if (m.now != nullptr) place += ", thread " + text(m.now->index);
  return place;
}

// The launch is over; the threads' stacks are left as they are.
void end_launch() {
  machine().failed = true;
  if (machine().now != nullptr) Fiber::abandon();
}

Position& position() {
  static Position here;
  return here;
}
int lane() {
  return machine().now->number % kLanes;
}

void block_barrier(int line) {
  machine().now->line = line;
  wait_in(State::kAtBarrier);
}

int block_barrier_count(int line, bool predicate) {
  machine().predicate_count += predicate ? 1 : 0;
  block_barrier(line);
  return machine().last_predicate_count;
}

const std::uint64_t* warp_exchange(unsigned mask, const char* what, std::uint64_t mine,
                                   void (*last)(const std::uint64_t* all)) {
  Machine& m = machine();
  const unsigned self = 1u << lane();
  if ((mask & self) == 0) fault(std::string(what) + ": the lane that calls is not in its mask");
  Meeting& meeting = meeting_of(mask, what);
  const int turn = meeting.turn;
  meeting.values[static_cast<std::size_t>(turn)][static_cast<std::size_t>(lane())] = mine;
  meeting.arrived |= self;
  const int warp = m.now->number / kLanes;
  if (meeting.arrived == mask) {
    meeting.arrived = 0;
    meeting.turn = 1 - turn;
    if (last != nullptr) last(meeting.values[static_cast<std::size_t>(turn)].data());
    for (int l = 0; l < kLanes; ++l)
      if ((mask >> l & 1u) != 0 && l != lane())
        make_ready(*m.threads[static_cast<std::size_t>(warp * kLanes + l)]);
  } else {
    wait_in(State::kAtWarpOperation);
  }
  // Others may have opened meetings meanwhile: look it up again.
  for (const Meeting& found : m.meetings[static_cast<std::size_t>(warp)])
    if (found.mask == mask) return found.values[static_cast<std::size_t>(turn)].data();
  return nullptr;
}

bool copies_come_late() {
  return machine().late_copies;
}
void add_pending_copy(std::function<void()> copy) {
  machine().now->copies.push_back(std::move(copy));
}
void run_pending_copies() {
  for (const std::function<void()>& copy : machine().now->copies) copy();
  machine().now->copies.clear();
}

void* shared_array(const char* file, int line, std::size_t bytes) {
  Machine& m = machine();
  SharedArray& array = m.shared[{file, line, bytes}];
  if (array.memory == nullptr) array.memory = std::make_unique<GuardedMemory>(bytes);
  if (array.block != m.blocks_run) {
    array.block = m.blocks_run;
    fill_nan(*array.memory);
  }
  return array.memory->data();
}

void* dynamic_shared() {
  static const char kDynamic[] = "dynamic";
  return shared_array(kDynamic, 0, std::max<std::size_t>(machine().shape.shared_bytes, 1));
}

}  // namespace emulation
