#undef _FORTIFY_SOURCE  // its longjmp() refuses to change to another stack
#include "fibers.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
// A launch that ends in a fault leaves its stacks as they are, with what their frames own. Forgotten device
// memory is counted by the emulation itself.
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
#endif

namespace emulation {
namespace {

// A kernel's own arrays are small; the sanitizer's frames are not.
constexpr std::size_t kStackBytes = std::size_t{256} << 10, kGuardBytes = 4096;

// Tells the sanitizer that the stack changes; nothing without it.
struct StackChange {
  void* shadow = nullptr;
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};
#if defined(__SANITIZE_ADDRESS__)
void leave_stack(StackChange* from, const void* to, std::size_t bytes) {
  __sanitizer_start_switch_fiber(from == nullptr ? nullptr : &from->shadow, to, bytes);
}
void arrive_at_stack(StackChange* self, StackChange* other) {
  __sanitizer_finish_switch_fiber(self == nullptr ? nullptr : self->shadow,
                                  other == nullptr ? nullptr : &other->bottom,
                                  other == nullptr ? nullptr : &other->bytes);
}
#else
void leave_stack(StackChange*, const void*, std::size_t) {}
void arrive_at_stack(StackChange*, StackChange*) {}
#endif

}  // namespace

// A fiber is entered once through makecontext(); from then on setjmp() and longjmp() change stacks without a
// system call, which swapcontext() makes every time.
struct Fiber::Impl {
  char* stack = nullptr;
  const std::function<void()>* task = nullptr;
  bool entered = false, ended = true;
  jmp_buf inside, outside;
  ucontext_t first;
  StackChange own, caller, outside_stack;

  static Impl* current;
  static void enter();
  void make_context();
  void leave();
};

Fiber::Impl* Fiber::Impl::current = nullptr;

void Fiber::Impl::enter() {
  Impl* self = current;
  arrive_at_stack(nullptr, &self->caller);
  for (;;) {
    (*self->task)();
    self->ended = true;
    self->leave();
  }
}

void Fiber::Impl::leave() {
  if (_setjmp(inside) == 0) {
    leave_stack(&own, caller.bottom, caller.bytes);
    _longjmp(outside, 1);
  }
  arrive_at_stack(&own, &caller);
}

void Fiber::Impl::make_context() {
  getcontext(&first);
  first.uc_stack.ss_sp = stack + kGuardBytes;
  first.uc_stack.ss_size = kStackBytes;
  first.uc_link = nullptr;
  makecontext(&first, &Impl::enter, 0);
  entered = false;
}

Fiber::Fiber() : impl_(std::make_unique<Impl>()) {
  void* block = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) std::abort();
  mprotect(block, kGuardBytes, PROT_NONE);
  impl_->stack = static_cast<char*>(block);
  impl_->make_context();
}

Fiber::~Fiber() {
  munmap(impl_->stack, kGuardBytes + kStackBytes);
}

void Fiber::start(const std::function<void()>& task) {
  if (!impl_->ended) {  // abandoned half way: begin on a fresh stack
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(impl_->stack + kGuardBytes, kStackBytes);
#endif
    impl_->make_context();
  }
  impl_->task = &task;
  impl_->ended = false;
}

bool Fiber::resume() {
  Impl& fiber = *impl_;
  Impl::current = &fiber;
  if (_setjmp(fiber.outside) == 0) {
    leave_stack(&fiber.outside_stack, fiber.stack + kGuardBytes, kStackBytes);
    if (!fiber.entered) {
      fiber.entered = true;
      setcontext(&fiber.first);
    }
    _longjmp(fiber.inside, 1);
  }
  arrive_at_stack(&impl_->outside_stack, nullptr);
  Impl::current = nullptr;
  return impl_->ended;
}

void Fiber::pause() {
  Impl::current->leave();
}

void Fiber::abandon() {
  Impl* self = Impl::current;
  leave_stack(nullptr, self->caller.bottom, self->caller.bytes);
  _longjmp(self->outside, 1);
}

}  // namespace emulation
