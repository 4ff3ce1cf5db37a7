#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/rng.h"
#include "base/test_directory.h"
#include "store/store.h"

namespace eaglet {

/// In place, without truncating first: some file systems flush on that, thousands of times a test.
inline void write_raw(const std::string& path, const std::string& content) {
  if (!path_exists(path)) std::ofstream(path, std::ios::binary);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << content;
  std::filesystem::resize_file(path, content.size());
}

/// One byte of a file changed in place.
inline void poke(const std::string& path, std::size_t at, char byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

/// Two captured layers of width 5, so that rows are no multiple of anything.
inline StoreHeader small_header() {
  StoreHeader header;
  header.target_identity = "0123456789abcdef";
  header.target_name = "tiny";
  header.hidden = 5;
  header.target_layers = 6;
  header.aux_layers = {2, 3};
  return header;
}

/// Document "doc<number>" of random ids, mask and finite states; the same for the same arguments.
inline DocumentStates random_document(const StoreHeader& header, int number, int tokens) {
  Rng rng(99, static_cast<std::uint64_t>(number) * 1000 + static_cast<std::uint64_t>(tokens));
  DocumentStates document;
  document.id = "doc" + std::to_string(number);
  for (int t = 0; t < tokens; ++t) {
    document.input_ids.push_back(static_cast<std::int32_t>(rng.below(64)));
    document.loss_mask.push_back(static_cast<std::uint8_t>(rng.below(2)));
  }
  const auto numbers = static_cast<std::size_t>(tokens * header.slots() * header.hidden);
  for (std::size_t i = 0; i < numbers; ++i)
    document.states.push_back(f32_to_bf16(static_cast<float>(rng.normal())));
  return document;
}

inline void write_store(const std::string& directory, const StoreHeader& header,
                        const std::vector<DocumentStates>& documents, const StoreWriterOptions& options) {
  auto writer = StoreWriter::open(directory, header, options);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (const DocumentStates& document : documents) {
    const Status appended = (*writer)->append(document);
    ASSERT_TRUE(appended.ok()) << appended.message();
  }
  ASSERT_TRUE((*writer)->finish().ok());
}

inline void write_store(const std::string& directory, const StoreHeader& header,
                        const std::vector<DocumentStates>& documents,
                        std::uint64_t shard_bytes = std::uint64_t{1} << 30) {
  write_store(directory, header, documents, StoreWriterOptions{.shard_bytes = shard_bytes});
}

inline void expect_same_document(const DocumentStates& a, const DocumentStates& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.input_ids, b.input_ids);
  EXPECT_EQ(a.loss_mask, b.loss_mask);
  EXPECT_EQ(a.states, b.states);
}

/// While it lives no file of this process can grow beyond `bytes`: write(2) fails as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

}  // namespace eaglet
