#include "apps/setting.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "apps/exit_code.h"
#include "apps/train_setting_table.h"

namespace eaglet::apps {
namespace {

// Other than the default, whatever that is.
struct Change {
  void operator()(std::string* value) const { *value += "a b=c,\"d\""; }
  void operator()(bool* value) const { *value = !*value; }
  void operator()(double* value) const { *value = *value / 3 + 1e-7; }
  template <class T>
  void operator()(std::vector<T>* values) const {
    values->insert(values->end(), {T{}, T{}});
  }
  template <class T>
  void operator()(T* value) const {
    *value += 123456789;
  }
};

TEST(Setting, WordsGiveTheFlagsTheSameValues) {
  TrainOptions before, after;
  EXPECT_EQ(flag_words(train_setting_table(before)), flag_words(train_setting_table(after)));
  for (Setting& setting : train_setting_table(before)) std::visit(Change(), setting.target);
  std::vector<std::string> words = flag_words(train_setting_table(before));
  EXPECT_NE(words, flag_words(train_setting_table(after)));
  CLI::App app;
  add_flags(app, train_setting_table(after));
  std::reverse(words.begin(), words.end());
  app.parse(words);
  EXPECT_EQ(flag_words(train_setting_table(after)), flag_words(train_setting_table(before)));
  EXPECT_EQ(after.lr, before.lr) << "to the last bit";
}

TEST(ExitCode, IsUnderstoodAgain) {
  for (const StatusCode kind :
       {StatusCode::kOk, StatusCode::kUsage, StatusCode::kDataLoss, StatusCode::kNotFound,
        StatusCode::kUnavailable, StatusCode::kInternal, StatusCode::kNoSpace, StatusCode::kBusy,
        StatusCode::kPermission, StatusCode::kConfig, StatusCode::kNumeric})
    EXPECT_EQ(kind_of_exit(exit_code(Status(kind, "x"))), kind);
  EXPECT_EQ(kind_of_exit(128 + 9), StatusCode::kUnavailable);
  EXPECT_EQ(kind_of_exit(127), StatusCode::kInternal);
}

}  // namespace
}  // namespace eaglet::apps
