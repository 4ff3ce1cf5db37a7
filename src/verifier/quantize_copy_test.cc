#include "verifier/quantize_copy.h"

#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/files.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;

TEST(SixteenBitCopy, SaysWhatIsWrongWithTheSource) {
  const std::string directory = fs::temp_directory_path() / ("eaglet_copy_test_" + std::to_string(getpid()));
  EXPECT_EQ(sixteen_bit_copy(directory + "/none.gguf", directory, 1).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(make_directories(directory).ok());
  ASSERT_TRUE(write_file_atomic(directory + "/text.gguf", "GGUF but not really").ok());
  EXPECT_EQ(sixteen_bit_copy(directory + "/text.gguf", directory, 1).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(list_directory(directory)->size(), 1u);  // nothing half-made is left
  fs::remove_all(directory);
}

TEST(SixteenBitCopy, IsMadeOnceAndFoundAgain) {
  const char* model = std::getenv("EAGLET_MODEL");
  if (model == nullptr || !path_exists(model)) GTEST_SKIP() << "the sample model is not there (EAGLET_MODEL)";
  const std::string directory = fs::temp_directory_path() / ("eaglet_copy_test_" + std::to_string(getpid()));
  const auto made = sixteen_bit_copy(model, directory, 2);
  ASSERT_TRUE(made.ok()) << made.status().message();
  gguf_context* gguf = gguf_init_from_file(made->c_str(), {true, nullptr});
  ASSERT_NE(gguf, nullptr);
  EXPECT_EQ(gguf_get_tensor_type(gguf, gguf_find_tensor(gguf, "blk.0.attn_q.weight")), GGML_TYPE_F16);
  EXPECT_EQ(gguf_get_tensor_type(gguf, gguf_find_tensor(gguf, "blk.0.attn_norm.weight")), GGML_TYPE_F32);
  gguf_free(gguf);
  const auto when = fs::last_write_time(*made);
  EXPECT_EQ(*sixteen_bit_copy(model, directory, 2), *made);
  EXPECT_EQ(fs::last_write_time(*made), when);
  EXPECT_EQ(*sixteen_bit_copy(*made, directory, 2), *made);  // is 16-bit already
  EXPECT_EQ(list_directory(directory)->size(), 1u);
  fs::remove_all(directory);
}

}  // namespace
}  // namespace eaglet
