#include "apps/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "apps/terminal.h"
#include "formats/json.h"

namespace eaglet::apps {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;

/// What is there to be read from a descriptor that does not block.
std::string drain(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

/// Both ends of a pipe.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe2(ends, O_NONBLOCK), 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  std::string read_all() const { return drain(ends[0]); }
  int ends[2];
};

TEST(Console, TextNamesCountRateAndEta) {
  PhaseView view{.phase = "generate", .unit = "prompts", .detail = "380 tokens/s"};
  view.done = 40;
  view.total = 100;
  view.rate = 2;
  view.elapsed_seconds = 20;
  EXPECT_EQ(progress_text(view), "generate  40/100 prompts  40%  2/s  eta 30.0s  20.0s  380 tokens/s");
  view.quiet_seconds = 75;
  EXPECT_THAT(progress_text(view), HasSubstr("last step 1m15s ago"));
  view.total = 0;
  EXPECT_EQ(eta_seconds(view), -1);
  EXPECT_THAT(progress_text(view), Not(HasSubstr("eta")));
}

TEST(Console, CutsToWidthOnCharacterBorders) {
  EXPECT_EQ(cut_to_columns("short", 10), "short");
  EXPECT_EQ(cut_to_columns("0123456789", 8), "01234...");
  EXPECT_EQ(cut_to_columns("\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc", 5), "\u00e4\u00f6...");
  EXPECT_EQ(cut_to_columns("abc", 2), "..");
  EXPECT_EQ(cut_to_columns("abc", 0), "");
}

TEST(Console, PlainLinesAreWholeAndCarryNoCursorCodes) {
  Pipe pipe;
  const auto progress = make_console_progress(ProgressMode::kAuto, pipe.ends[1], false);
  progress->begin("extract", 10, "documents", 3);
  const std::string first = pipe.read_all();  // the first sign of life needs no update
  EXPECT_THAT(first, HasSubstr("extract: 10 documents, 3 already done\n"));
  EXPECT_EQ(first[4], '-') << first;  // begins with a date
  progress->update(5, "x");
  progress->note("warning: a broken line");
  progress->end("10 documents");
  const std::string rest = pipe.read_all();
  EXPECT_THAT(rest, HasSubstr("warning: a broken line\n"));
  EXPECT_THAT(rest, HasSubstr("extract: done in "));
  EXPECT_THAT(rest, Not(HasSubstr("\r")));
  EXPECT_THAT(rest, Not(HasSubstr("\033")));
}

TEST(Console, JsonLinesParse) {
  Pipe pipe;
  const auto progress = make_console_progress(ProgressMode::kJson, pipe.ends[1], false);
  progress->begin("train", 0, "steps", 0);
  progress->end("done");
  const std::string text = pipe.read_all();
  const auto first = parse_json(text.substr(0, text.find('\n')));
  ASSERT_TRUE(first.ok()) << text;
  EXPECT_EQ((*first)["event"], "begin");
  EXPECT_TRUE((*first)["total"].is_null());
  EXPECT_TRUE((*first)["eta_seconds"].is_null());
}

TEST(Console, TerminalLineIsRewrittenWithinItsWidthAndCleared) {
  int master = -1, slave = -1;
  winsize size = {.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_EQ(terminal_columns(slave), 40);
  {
    const auto progress = make_console_progress(ProgressMode::kTty, slave, false);
    progress->begin("a phase with quite a long name", 1000, "documents", 0);
    progress->update(500, "and a long detail behind it");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  ASSERT_EQ(::fcntl(master, F_SETFL, O_NONBLOCK), 0);
  const std::string text = drain(master);
  ASSERT_GT(text.size(), 4u);
  EXPECT_THAT(text, HasSubstr("\ra phase with quite a long name"));
  EXPECT_THAT(text, HasSubstr("...\033[K"));
  EXPECT_EQ(text.substr(text.size() - 4), "\r\033[K");
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  ::close(master);
  ::close(slave);
}

TEST(Console, KnowsItsModes) {
  EXPECT_EQ(parse_progress_mode("plain"), ProgressMode::kPlain);
  EXPECT_EQ(parse_progress_mode("loud"), std::nullopt);
}

TEST(Terminal, ColorRules) {
  ::unsetenv("NO_COLOR");
  ::unsetenv("CLICOLOR_FORCE");
  ::unsetenv("FORCE_COLOR");
  Pipe pipe;
  EXPECT_FALSE(use_color(ColorMode::kAuto, pipe.ends[1]));
  ::setenv("FORCE_COLOR", "1", 1);
  EXPECT_TRUE(use_color(ColorMode::kAuto, pipe.ends[1]));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(use_color(ColorMode::kAuto, pipe.ends[1]));
  EXPECT_TRUE(use_color(ColorMode::kAlways, pipe.ends[1]));  // the flag wins
  ::unsetenv("NO_COLOR");
  EXPECT_FALSE(use_color(ColorMode::kNever, pipe.ends[1]));
  ::unsetenv("FORCE_COLOR");
}

}  // namespace
}  // namespace eaglet::apps
