#include "apps/facts_text.h"

#include <gtest/gtest.h>

namespace eaglet::apps {
namespace {

TEST(FactsText, ValuesThenTables) {
  Json facts;
  facts["kind"] = "thing";
  facts["rows"] = Json::array(
      {{{"name", "a"}, {"bytes", 5}}, {{"name", "long"}, {"bytes", 12345}}, {{"name", "c"}, {"bytes", 1}}});
  facts["shape_of_it"] = {2, 3};
  facts["nothing"] = "";
  facts["whole"] = true;
  facts["inner"] = {{"least_one", 1}, {"Q4_1", nullptr}};
  EXPECT_EQ(facts_text(facts, 2),
            "kind         thing\n"
            "shape of it  [2, 3]\n"
            "nothing      -\n"
            "whole        yes\n"
            "inner        least one 1, Q4_1 -\n"
            "\n"
            "rows (3)\n"
            "  name  bytes\n"
            "  a         5\n"
            "  long  12345\n"
            "  ... and 1 more (--all)\n");
}

}  // namespace
}  // namespace eaglet::apps
