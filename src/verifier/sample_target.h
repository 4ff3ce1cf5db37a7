#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "base/files.h"
#include "verifier/target.h"

namespace eaglet {

/// The sample model, loaded once for all tests of a program; nullptr when it is not there.
inline const Target* sample_target() {
  static const std::unique_ptr<Target> target = []() -> std::unique_ptr<Target> {
    if (!path_exists(EAGLET_SAMPLE_MODEL)) return nullptr;
    auto loaded = Target::load(EAGLET_SAMPLE_MODEL);
    return loaded.ok() ? std::move(*loaded) : nullptr;
  }();
  return target.get();
}

#define EAGLET_NEEDS_SAMPLE_MODEL()                                                                        \
  if (!::eaglet::path_exists(EAGLET_SAMPLE_MODEL))                                                         \
    GTEST_SKIP() << "the sample model is not at " << EAGLET_SAMPLE_MODEL << " (scripts/setup fetches it)"; \
  ASSERT_NE(::eaglet::sample_target(), nullptr) << "the sample model cannot be loaded"

}  // namespace eaglet
