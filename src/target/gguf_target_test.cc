#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "formats/safetensors.h"
#include "target/target_forward.h"

namespace eaglet {
namespace {

// States of the sample model by the transformers library, in fp32 (testdata/extract/README.md).
TEST(GgufTarget, StatesOfTheSampleModelAreTransformers) {
  if (!path_exists(EAGLET_SAMPLE_MODEL))
    GTEST_SKIP() << "the sample model is not there (scripts/setup fetches it)";
  auto forward = TargetForward::open(EAGLET_SAMPLE_MODEL);
  ASSERT_TRUE(forward.ok()) << forward.status().what();
  const std::int64_t layers = (*forward)->config().num_layers;
  const auto width = static_cast<std::size_t>((*forward)->config().hidden);
  const std::map<std::int64_t, std::string> slots = {
      {2, "state_2"}, {15, "state_15"}, {27, "state_27"}, {layers, "state_last"}};
  for (const char* name : {"p0000", "p0001"}) {
    const auto file =
        SafetensorsFile::open(std::string(EAGLET_TESTDATA) + "/extract/" + name + ".safetensors");
    ASSERT_TRUE(file.ok());
    const auto ids = *file->read_i64("input_ids");
    const std::vector<std::int32_t> document(ids.begin(), ids.end());
    double least = 1;
    const Status ran = (*forward)->run({&document}, layers, [&](std::int64_t k, const float* x) {
      if (!slots.contains(k)) return Status();
      const auto wanted = *file->read_f32(slots.at(k));
      for (std::size_t t = 0; t < document.size(); ++t) {
        double ab = 0, aa = 0, bb = 0;
        for (std::size_t i = t * width; i < (t + 1) * width; ++i) {
          const double a = wanted[i], b = x[i];
          ab += a * b, aa += a * a, bb += b * b;
        }
        least = std::min(least, ab / std::sqrt(aa * bb));
      }
      return Status();
    });
    ASSERT_TRUE(ran.ok()) << ran.what();
    EXPECT_GE(least, 0.99999) << name;
  }
}

}  // namespace
}  // namespace eaglet
