#include "extract/forecast.h"

#include <gtest/gtest.h>

namespace eaglet {
namespace {

TEST(Forecast, SaysWhatIsMissingBeforeAnyWork) {
  // Eight documents of 32800 tokens at the reference shape: four slots of 7168.
  const Forecast forecast = forecast_states({8192, 8192, 8192, 4000, 2000, 1200, 800, 224}, 4, 7168);
  EXPECT_EQ(forecast.tokens, 32800);
  EXPECT_EQ(forecast.state_bytes, 1880883200u);
  EXPECT_LT(static_cast<double>(forecast.needed_bytes), 1880883200.0 * 1.02);
  EXPECT_EQ(forecast_text(forecast, 1500000000),
            "needs about 1.88 GB, free 1.50 GB, short by about 381.05 MB");
  const Status status = check_forecast(forecast, 1500000000, "/disk/states", false);
  EXPECT_EQ(status.code(), StatusCode::kNoSpace);
  for (const char* lever :
       {"--target-layer-ids", "--max-seq-len", "fewer conversations", "--drop-states", "--force"})
    EXPECT_NE(status.todo().find(lever), std::string::npos) << lever;
  EXPECT_TRUE(check_forecast(forecast, 1500000000, "/disk/states", true).ok());
  EXPECT_TRUE(check_forecast(forecast, 2000000000, "/disk/states", false).ok());
}

TEST(Forecast, TheFullReferenceRun) {
  const Forecast forecast = forecast_states(std::vector<std::int64_t>(37312, 2205), 4, 7168);
  EXPECT_EQ(forecast_text(forecast, 10000000000000), "needs about 4.72 TB, free 10.00 TB");
}

}  // namespace
}  // namespace eaglet
