// What a run leaves in its folder, and where its output goes, by whichever trainer.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/test_directory.h"
#include "monitor/activity.h"
#include "monitor/run_config.h"
#include "monitor/sampler.h"
#include "monitor/target.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

TEST(Checkpoints, ByTheNamesOfAllTrainers) {
  const auto expect = [](const char* path, std::int64_t step, const char* folder) {
    const CheckpointSeen seen = checkpoint_of_path(path);
    EXPECT_EQ(seen.step, step) << path;
    EXPECT_EQ(seen.path, folder) << path;
  };
  expect("run/checkpoint-400/model.safetensors", 400, "run/checkpoint-400");
  expect("out/kimi-step00500/training.pt", 500, "out/kimi-step00500");
  expect("out/epoch3_step120/optimizer_state_dict.pt", 120, "out/epoch3_step120");
  expect("lightning_logs/version_0/checkpoints/epoch=1-step=500.ckpt", 500,
         "lightning_logs/version_0/checkpoints/epoch=1-step=500.ckpt");
  expect("out/step_700.pt", 700, "out/step_700.pt");
  expect("out/step-7/step_700.pt", 7, "out/step-7");
  for (const char* none :
       {"out/last.ckpt", "out/model.pt", "out/steps.txt", "checkpoint-400", "step_3.log", "", ".pt"})
    expect(none, -1, "");
}

TEST(Checkpoints, SpeculatorsNumbersEpochs) {
  const std::string dir = test_directory();
  put(dir + "/train.log", "[09:16:30] INFO train/loss_0=8.9, global_step=430\n");
  for (const int epoch : {0, 1}) {
    const std::string folder = dir + "/" + std::to_string(epoch);
    put(folder + "/model.safetensors", std::string(5000, 'x'));
    put(folder + "/training_state.json",
        "{\"epoch\":0,\"local_step\":0,\"global_step\":" + std::to_string(200 * (epoch + 1)) + "}");
  }
  put(dir + "/2/model.safetensors", "x");      // without its state: nothing to go on from
  put(dir + "/3/training_state.json", "[1]");  // damaged
  Target target;
  find_files_in(dir, &target);
  Sampler sampler(target, ProcReader(), nullptr);
  sampler.sample();
  const Activity activity = activity_of(sampler.series(), Thresholds());
  ASSERT_EQ(activity.checkpoints.size(), 2u);
  EXPECT_EQ(activity.checkpoints.back().path, dir + "/1");
  EXPECT_EQ(activity.checkpoints.back().step, 400);
  EXPECT_GT(activity.checkpoints.back().bytes, 5000);
}

TEST(TrainCommand, TellsWhatWasAskedOfARunThatIsGone) {
  const std::string dir = test_directory();
  put(dir + "/run.yaml", "train:\n  max_seq_len: 4096\n");
  put(dir + "/train.log", "step=1 loss=7\n");
  put(dir + "/train_command.txt",
      "# 2026-03-04, commit abc, before: --lr 5e-5\n# torch 2.14\npython train.py --max-seq-len 8192 \\\n  "
      "--lr "
      "1e-4\n");
  Target target;
  find_files_in(dir, &target);
  Sampler sampler(target, ProcReader(), nullptr);
  sampler.sample();
  const RunConfig config(sampler.series());
  EXPECT_EQ(config.number("lr"), 1e-4);
  ASSERT_EQ(config.differences().size(), 1u);
  EXPECT_EQ(config.differences().front().asked, "8192");
  EXPECT_EQ(config.differences().front().effective, "4096");
}

/// A process with these as its first and second output.
void process(const HostRoots& roots, int pid, int parent, const std::string& command, const std::string& out,
             const std::string& err) {
  const std::string place = roots.proc + "/" + std::to_string(pid);
  put(place + "/stat",
      std::to_string(pid) + " (python) S " + std::to_string(parent) +
          " 10 10 0 -1 4194304 100 0 7 0 5 50 0 0 20 0 3 0 100 1000000 250 18446744073709551615 0 0 0\n");
  put(place + "/cmdline", command);
  for (const auto& [fd, path] : {std::pair{1, out}, {2, err}}) {
    std::filesystem::create_directories(place + "/fd");
    std::filesystem::create_symlink(path, place + "/fd/" + std::to_string(fd));
    put(place + "/fdinfo/" + std::to_string(fd), "pos:\t0\nflags:\t0100001\n");
  }
}

TEST(Output, ARanksOwnFileIsReadBeforeItsLaunchers) {
  const std::string dir = test_directory();
  HostRoots roots;
  roots.proc = dir + "/proc";
  put(roots.proc + "/uptime", "5000 9000\n");
  put(dir + "/nohup.out", "launching\n");
  for (const char* rank : {"0", "1"})
    for (const char* name : {"stdout.log", "stderr.log"}) put(dir + "/attempt_0/" + rank + "/" + name, "");
  process(roots, 10, 1, std::string("python\0-m\0torch.distributed.run\0train.py\0", 41), dir + "/nohup.out",
          dir + "/nohup.out");
  for (const int rank : {0, 1})
    process(roots, 11 + rank, 10, std::string("python\0train.py\0", 16),
            dir + "/attempt_0/" + std::to_string(rank) + "/stdout.log",
            dir + "/attempt_0/" + std::to_string(rank) + "/stderr.log");
  const ProcReader reader(roots);
  auto target = resolve_target("10", reader);
  ASSERT_TRUE(target.ok()) << target.status().message();
  EXPECT_EQ(target->log_path, dir + "/attempt_0/0/stdout.log");
  put(dir + "/attempt_0/1/stderr.log", "step=1 loss=8\n");
  put(dir + "/attempt_0/0/stderr.log", "step=1 loss=7\n");  // logging writes there
  find_files(reader, {{12, "python train.py", reader.open_files(12)}}, &*target);
  EXPECT_EQ(target->log_path, dir + "/attempt_0/0/stdout.log") << "another program's is no better";
  find_files(reader, {{11, "python train.py", reader.open_files(11)}}, &*target);
  EXPECT_EQ(target->log_path, dir + "/attempt_0/0/stderr.log") << "the first stayed empty";
  put(dir + "/attempt_0/0/stdout.log", "done\n");
  find_files(reader, {{11, "python train.py", reader.open_files(11)}}, &*target);
  EXPECT_EQ(target->log_path, dir + "/attempt_0/0/stderr.log") << "it is not left again";
  auto named = resolve_target(dir + "/nohup.out", reader);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->log_path, dir + "/nohup.out") << "what was named is read";
}

}  // namespace
}  // namespace eaglet::monitor
