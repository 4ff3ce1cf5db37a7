#include "store/forecast.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "store/state_codec.h"
#include "store/store_test_helpers.h"

namespace eaglet {
namespace {

StoreHeader reference_header() {
  StoreHeader header = small_header();
  header.hidden = 7168;
  header.target_layers = 61;
  header.aux_layers = {3, 31, 59};
  return header;
}

std::vector<DocumentSize> documents(const std::vector<std::int64_t>& tokens) {
  std::vector<DocumentSize> sizes;
  for (const std::int64_t n : tokens) sizes.push_back({n, 2});
  return sizes;
}

TEST(Forecast, SaysWhatIsMissingBeforeAnyWork) {
  // Eight documents of 32800 tokens at the reference shape: four slots of 7168.
  const Forecast forecast =
      forecast_store(reference_header(), documents({1800, 2400, 4096, 8192, 5000, 120, 8192, 3000}));
  EXPECT_EQ(forecast.tokens, 32800);
  EXPECT_EQ(forecast.bytes_per_token, 57344u);
  EXPECT_EQ(forecast.state_bytes, 1880883200u);
  EXPECT_LT(static_cast<double>(forecast.needed_bytes), 1880883200.0 * 1.02);
  EXPECT_EQ(forecast_text(forecast, 1500000000), "needs about 1.88 GB, free 1.50 GB, short by about 0.38 GB");
  const Status status = check_forecast(forecast, 1500000000, "/disk/states", false);
  EXPECT_EQ(status.code(), StatusCode::kNoSpace);
  for (const char* lever :
       {"--target-layer-ids", "--max-seq-len", "fewer conversations", "on demand", "--force"})
    EXPECT_NE(status.todo().find(lever), std::string::npos) << lever;
  EXPECT_TRUE(check_forecast(forecast, 1500000000, "/disk/states", true).ok());
  EXPECT_TRUE(check_forecast(forecast, 2000000000, "/disk/states", false).ok());
}

TEST(Forecast, TheFullReferenceRun) {
  const Forecast forecast =
      forecast_store(reference_header(), documents(std::vector<std::int64_t>(37312, 2205)));
  EXPECT_EQ(forecast_text(forecast, 10000000000000), "needs about 4.72 TB, free 10.00 TB");
}

TEST(Forecast, IsWhatTheWriterMakesToTheByte) {
  StoreHeader header = small_header();
  std::vector<DocumentStates> made;
  std::vector<DocumentSize> planned;
  for (int i = 0; i < 40; ++i) {
    made.push_back(random_document(header, i, 1 + (i * 37) % 90));
    const KeptRows kept = kept_rows(made.back().loss_mask, true);
    planned.push_back({static_cast<std::int64_t>(made.back().input_ids.size()),
                       static_cast<std::int64_t>(made.back().id.size()), kept.aux_rows, kept.last_rows()});
  }
  int stores = 0;
  for (const StateEncoding encoding : {StateEncoding::kRaw, StateEncoding::kFp8})
    for (const bool drop : {false, true})
      for (const std::uint64_t shard_bytes :
           {std::uint64_t{2048}, std::uint64_t{10000}, std::uint64_t{1} << 30}) {
        header.dtype = encoding == StateEncoding::kFp8 ? Dtype::kF8E4M3 : Dtype::kBF16;
        const StoreWriterOptions options{shard_bytes, encoding, drop};
        const std::string directory = test_directory(std::to_string(stores++));
        write_store(directory, header, made, options);
        std::uint64_t written = 0;
        std::int64_t shards = 0;
        for (const auto& file : std::filesystem::directory_iterator(directory)) {
          if (file.path().extension() != ".shard") continue;
          written += file.file_size();
          ++shards;
        }
        const Forecast forecast = forecast_store(header, planned, options);
        EXPECT_EQ(forecast.needed_bytes, written) << stores;
        EXPECT_EQ(forecast.shards, shards) << stores;
        EXPECT_TRUE(forecast.exact);
      }
}

}  // namespace
}  // namespace eaglet
