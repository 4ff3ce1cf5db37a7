#include "comm/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace eaglet {
namespace {

using testing::HasSubstr;
using Way = RankEnvironment::Way;

Result<RankEnvironment> read_with(const std::map<std::string, std::string>& variables, bool with_mpi = true) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "EAGLET_MASTER_PORT",
        "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID", "SLURM_LOCALID"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  Result<RankEnvironment> read = read_rank_environment(with_mpi);
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  return read;
}

std::map<std::string, std::string> torchrun() {
  return {{"RANK", "5"},         {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},
          {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "job 7"}};
}

TEST(RankEnvironment, NothingSaidIsOneRank) {
  EXPECT_EQ(read_with({})->way, Way::kAlone);
  EXPECT_EQ(read_with({{"WORLD_SIZE", "1"}, {"RANK", "0"}})->way, Way::kAlone);
  EXPECT_EQ(read_with({{"SLURM_STEP_NUM_TASKS", "1"}})->way, Way::kAlone);
}

TEST(RankEnvironment, TorchrunsVariablesAreUnderstood) {
  const auto e = read_with(torchrun());
  ASSERT_TRUE(e.ok()) << e.status().message();
  EXPECT_EQ(e->way, Way::kSockets);
  EXPECT_EQ(e->rank, 5);
  EXPECT_EQ(e->ranks, 8);
  EXPECT_EQ(e->rank_here, 1);
  EXPECT_EQ(e->host, "n0");
  EXPECT_EQ(e->port, 29500);
  EXPECT_EQ(e->listening, -1);
}

// The agent's store listens at MASTER_PORT then.
TEST(RankEnvironment, TheAgentsPortIsLeftToIt) {
  auto variables = torchrun();
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read_with(variables)->port, 29501);
  variables["MASTER_PORT"] = "65535";
  EXPECT_EQ(read_with(variables)->port, 65534);
  variables["EAGLET_MASTER_PORT"] = "4000";
  EXPECT_EQ(read_with(variables)->port, 4000);
}

TEST(RankEnvironment, WhatIsMissingOrWrongIsNamed) {
  for (const char* name : {"RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    auto variables = torchrun();
    variables.erase(name);
    const auto e = read_with(variables);
    EXPECT_EQ(e.status().code(), StatusCode::kConfig);
    EXPECT_THAT(e.status().what(), HasSubstr(name));
  }
  auto variables = torchrun();
  variables["WORLD_SIZE"] = "many";
  EXPECT_THAT(read_with(variables).status().what(), HasSubstr("WORLD_SIZE is no number"));
  variables = torchrun();
  variables["RANK"] = "8";
  EXPECT_THAT(read_with(variables).status().what(), HasSubstr("rank 8 of 8"));
}

TEST(RankEnvironment, LaunchersOfMpiComeFirstWhereItIsBuiltIn) {
  auto variables = torchrun();
  variables["OMPI_COMM_WORLD_SIZE"] = "8";
  EXPECT_EQ(read_with(variables)->way, Way::kMpi);
  EXPECT_EQ(read_with(variables, false)->way, Way::kSockets);
  EXPECT_EQ(read_with({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_RANK", "1"}})->way, Way::kMpi);
}

TEST(RankEnvironment, TasksOfSrunMeetWhereTheyAreTold) {
  const std::map<std::string, std::string> tasks = {
      {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}};
  EXPECT_EQ(read_with(tasks).status().code(), StatusCode::kConfig);
  auto told = tasks;
  told["MASTER_ADDR"] = "n0";
  told["MASTER_PORT"] = "29500";
  const auto e = read_with(told);
  ASSERT_TRUE(e.ok()) << e.status().message();
  EXPECT_EQ(e->way, Way::kSockets);
  EXPECT_EQ(e->rank, 3);
  EXPECT_EQ(e->ranks, 4);
  EXPECT_EQ(e->rank_here, 1);
}

}  // namespace
}  // namespace eaglet
