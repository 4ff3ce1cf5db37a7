#include "evaluate/server_acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace eaglet {
namespace {

using testing::HasSubstr;

WalkedAcceptance walked(double tokens, double accepted) {
  WalkedAcceptance w;
  w.draft_length = 3;
  w.tokens = tokens;
  w.accepted = accepted;
  w.drafts = tokens - accepted;
  w.accepted_at = {accepted * 0.7, accepted * 0.2, accepted * 0.1};
  return w;
}
ServerAcceptance served(double tokens, double accepted) {
  ServerAcceptance s;
  s.tokens = tokens;
  s.accepted = accepted;
  s.drafts = tokens - accepted;
  s.accepted_at = {accepted * 0.7, accepted * 0.2, accepted * 0.1};
  s.same_share = 1;
  return s;
}

TEST(JudgeServer, NearTheWalkIsGood) {
  EXPECT_TRUE(judge_server(served(1000, 300), walked(1000, 310)).good);
  const ServerVerdict better = judge_server(served(1000, 330), walked(1000, 310));
  EXPECT_TRUE(better.good);
  EXPECT_GT(better.ratio, 1);
}

TEST(JudgeServer, NothingAcceptedIsNeverGoodThoughTheLengthsAreClose) {
  const ServerVerdict verdict = judge_server(served(1000, 0), walked(1000, 90));
  EXPECT_GT(verdict.ratio, 0.9);
  EXPECT_FALSE(verdict.good);
  ASSERT_EQ(verdict.causes.size(), 5u);
  EXPECT_THAT(verdict.causes[0], HasSubstr("map"));
}

TEST(JudgeServer, LaterPositionsPointAtWhatIsFedBack) {
  ServerAcceptance s = served(1000, 300);
  s.accepted = 200;
  s.accepted_at = {200, 0, 0};
  s.drafts = 800;
  const ServerVerdict verdict = judge_server(s, walked(1000, 400));
  EXPECT_FALSE(verdict.good);
  EXPECT_THAT(verdict.causes[0], HasSubstr("RoPE"));
}

TEST(JudgeServer, OtherAnswersPointAtSampling) {
  ServerAcceptance s = served(1000, 50);
  s.same_share = 0.1;
  EXPECT_THAT(judge_server(s, walked(1000, 400)).causes[0], HasSubstr("sampling: 10 %"));
}

}  // namespace
}  // namespace eaglet
