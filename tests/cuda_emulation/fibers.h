#pragma once

// Many flows of control on one thread of the system: the threads of an emulated block.

#include <cstddef>
#include <functional>
#include <memory>

namespace emulation {

/// A stack of its own that runs one task after another. start() hands it a task; resume() runs the task until
/// it calls pause() or ends. All from one thread of the system.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The task stays with the caller, until it has ended or was abandoned.
  void start(const std::function<void()>& task);
  /// True when the task has ended.
  bool resume();
  /// From within a task: back to whoever called resume().
  static void pause();
  /// From within a task, also from a signal handler: back to resume(), never to return. The stack is not
  /// unwound; the fiber may be started anew.
  [[noreturn]] static void abandon();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace emulation
