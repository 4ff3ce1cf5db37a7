#include "store/hole_shard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/files.h"
#include "base/test_directory.h"
#include "store/store_files.h"

namespace eaglet {
namespace {

// A store that is far larger than what it takes of the disk is a store like any other.
TEST(HoleShards, AreWholeAndTakeNoRoom) {
  const StoreHeader header{"0123456789abcdef", "holes", 1024, 32, {2, 16, 29}, true, Dtype::kBF16};
  const std::string directory = test_directory("holes");
  HoleShards writer(header);
  ASSERT_TRUE(writer.write(shard_path(directory, 0), {"a", "b", "c"}, 3000).ok());
  ASSERT_TRUE(writer.write(shard_path(directory, 1), {"d"}, 5).ok());
  const auto store = StoreReader::open(directory);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->documents().size(), 4u);
  EXPECT_GT((*store)->bytes(), 3u * 3000 * 4 * 1024 * 2);
  struct stat info = {};
  ASSERT_EQ(::stat(shard_path(directory, 0).c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, info.st_size / 100);
  const Status whole = (*store)->verify();
  EXPECT_TRUE(whole.ok()) << whole.message();
  DocumentStates document;
  ASSERT_TRUE((*store)->read_into(0, &document).ok());
  EXPECT_EQ(document.input_ids.back(), 2999);
  // The same memory again for a smaller one.
  ASSERT_TRUE((*store)->read_into(3, &document).ok());
  EXPECT_EQ(document.id, "d");
  EXPECT_EQ(document.states.size(), 5u * 4 * 1024);
  EXPECT_TRUE(
      std::all_of(document.states.begin(), document.states.end(), [](auto bits) { return bits == 0; }));
  EXPECT_EQ(document.loss_mask, (std::vector<std::uint8_t>{0, 0, 1, 1, 1}));
}

std::size_t pages_in_memory(const MappedFile& file) {
  std::vector<unsigned char> there(file.bytes() / 4096 + 1);
  if (::mincore(const_cast<std::byte*>(file.data()), file.bytes(), there.data()) != 0) return 0;
  return static_cast<std::size_t>(
      std::count_if(there.begin(), there.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

// Disks may be set to read megabytes around a touched page; for one row of one document those are for
// nothing.
TEST(HoleShards, OneRowReadsFewPages) {
  const StoreHeader header{"0123456789abcdef", "holes", 1024, 32, {2, 16, 29}, true, Dtype::kBF16};
  const std::string directory = test_directory("few-pages");
  HoleShards writer(header);
  ASSERT_TRUE(writer.write(shard_path(directory, 0), {"a", "b", "c", "d"}, 3000).ok());
  const auto file = MappedFile::open(shard_path(directory, 0));
  ASSERT_TRUE(file.ok());
  const std::size_t before = pages_in_memory(*file);  // those just written
  const auto store = StoreReader::open(directory);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->read_tokens(2).ok());
  std::vector<float> aux(3 * 1024), last(1024);
  StateRange range;
  range.aux_first = range.last_first = 1500;
  range.count = 1;
  range.checked = true;
  ASSERT_TRUE((*store)->read_states_f32(2, range, aux.data(), last.data()).ok());
  EXPECT_LE(pages_in_memory(*file), before + 16);
}

}  // namespace
}  // namespace eaglet
