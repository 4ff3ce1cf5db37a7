#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/rng.h"
#include "batch/loader.h"
#include "batch/store_rows.h"
#include "formats/conversations.h"
#include "store/store_test_helpers.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::size_t> all_of(const StoreReader& store) {
  std::vector<std::size_t> all(store.documents().size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// A store of documents of these lengths; supervised from `prompt` on.
struct Shape {
  int prompt, tokens;
};
std::unique_ptr<StoreReader> store_of(const std::string& name, const StoreHeader& header,
                                      const std::vector<Shape>& shapes) {
  const std::string directory = test_directory(name);
  std::vector<DocumentStates> documents;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    documents.push_back(random_document(header, static_cast<int>(i), shapes[i].tokens));
    for (int t = 0; t < shapes[i].tokens; ++t) documents.back().loss_mask[t] = t >= shapes[i].prompt;
  }
  write_store(directory, header, documents, 20000);
  auto reader = StoreReader::open(directory);
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  return std::move(*reader);
}

std::vector<Shape> random_shapes(int n, int longest, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<Shape> shapes;
  for (int i = 0; i < n; ++i) {
    const int tokens = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(longest)));
    shapes.push_back({static_cast<int>(rng.below(static_cast<std::uint64_t>(tokens) + 2)), tokens});
  }
  return shapes;
}

/// What the contract says, written down plainly.
void expect_batch_is_the_data_shift(const StoreReader& store, const std::vector<std::size_t>& documents,
                                    std::int64_t max_rows, const PackedBatch& batch) {
  const std::int64_t hidden = store.header().hidden, aux = hidden * (store.header().slots() - 1),
                     row = aux + hidden;
  ASSERT_EQ(batch.documents, documents);
  std::int64_t at = 0;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const DocumentStates x = *store.read(documents[d]);
    std::int64_t n = static_cast<std::int64_t>(x.input_ids.size());
    if (max_rows > 0) n = std::min(n, max_rows);
    for (std::int64_t p = 0; p + 1 < n; ++p, ++at) {
      ASSERT_EQ(batch.input_ids[at], x.input_ids[p + 1]);
      ASSERT_EQ(batch.loss_mask[at], x.loss_mask[p + 1]);
      ASSERT_EQ(batch.position_ids[at], p + 1);
      ASSERT_EQ(batch.document_ids[at], static_cast<std::int32_t>(d));
      for (std::int64_t h = 0; h < aux; ++h)
        ASSERT_EQ(batch.aux_hidden_states[at * aux + h], bf16_to_f32(x.states[p * row + h]));
      for (std::int64_t h = 0; h < hidden; ++h)
        ASSERT_EQ(batch.last_hidden_states[at * hidden + h], bf16_to_f32(x.states[(p + 1) * row + aux + h]));
    }
  }
  ASSERT_EQ(batch.real_tokens, at);
  ASSERT_EQ(batch.rows, max_rows > 0 ? max_rows : at);
  ASSERT_EQ(static_cast<std::int64_t>(batch.input_ids.size()), batch.rows);
  ASSERT_EQ(static_cast<std::int64_t>(batch.aux_hidden_states.size()), batch.rows * aux);
  ASSERT_EQ(static_cast<std::int64_t>(batch.last_hidden_states.size()), batch.rows * hidden);
  for (; at < batch.rows; ++at) {
    ASSERT_EQ(batch.document_ids[at], -1);
    ASSERT_EQ(batch.loss_mask[at], 0);
    ASSERT_EQ(batch.input_ids[at], 0);
    for (std::int64_t h = 0; h < aux; ++h) ASSERT_EQ(batch.aux_hidden_states[at * aux + h], 0.0f);
  }
}

TEST(FillBatch, IsTheDataShift) {
  const auto store = store_of("s", small_header(), {{2, 5}, {0, 2}, {3, 9}, {1, 1}});
  PackedBatch batch;
  for (const std::int64_t max_rows : {0, 13, 20, 40, 0}) {  // memory is reused, larger and smaller
    ASSERT_TRUE(fill_batch(*store, {2, 0, 1}, max_rows, &batch).ok());
    expect_batch_is_the_data_shift(*store, {2, 0, 1}, max_rows, batch);
  }
  ASSERT_TRUE(fill_batch(*store, {2}, 6, &batch).ok());  // cut to 6 tokens: 5 rows
  EXPECT_EQ(batch.real_tokens, 5);
  expect_batch_is_the_data_shift(*store, {2}, 6, batch);
  ASSERT_TRUE(fill_batch(*store, {3, 1}, 0, &batch).ok());  // one token alone gives no row
  expect_batch_is_the_data_shift(*store, {3, 1}, 0, batch);
  ASSERT_TRUE(fill_batch(*store, {}, 4, &batch).ok());
  EXPECT_EQ(batch.real_tokens, 0);
  EXPECT_EQ(fill_batch(*store, {2, 0}, 9, &batch).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fill_batch(*store, {4}, 0, &batch).code(), StatusCode::kInvalidArgument);
}

// Read run by run from the store, rows hold what fill_batch() copies.
TEST(StoreRows, AreThoseOfTheFilledBatch) {
  const StoreHeader header = small_header();
  const auto store = store_of("store_rows", header, {{2, 9}, {1, 6}, {0, 4}});
  PackedBatch filled, left;
  ASSERT_TRUE(fill_batch(*store, {2, 0, 1}, 20, &filled).ok());
  ASSERT_TRUE(fill_batch(*store, {2, 0, 1}, 20, &left, BatchStates::kInStore).ok());
  EXPECT_TRUE(left.states_in_store && left.aux_hidden_states.empty() && left.last_hidden_states.empty());
  EXPECT_EQ(left.input_ids, filled.input_ids);
  EXPECT_EQ(left.document_ids, filled.document_ids);
  EXPECT_EQ(left.documents, filled.documents);
  StoreRows rows(*store);
  rows.use(left);
  const std::int64_t width = header.hidden, aux_width = width * (header.slots() - 1);
  for (const auto& [first, n] : {std::pair{0, 3}, {3, 8}, {4, 2}, {10, 1}, {11, 5}, {0, 1}}) {
    std::vector<float> aux(static_cast<std::size_t>(n * aux_width)),
        last(static_cast<std::size_t>(n * width));
    ASSERT_TRUE(rows.read_aux(first, n, aux.data()).ok());
    ASSERT_TRUE(rows.read_last(first, n, last.data()).ok());
    EXPECT_TRUE(std::equal(aux.begin(), aux.end(), filled.aux_hidden_states.begin() + first * aux_width));
    EXPECT_TRUE(std::equal(last.begin(), last.end(), filled.last_hidden_states.begin() + first * width));
  }
  std::vector<float> aux(static_cast<std::size_t>(9 * aux_width));
  EXPECT_FALSE(rows.read_aux(3, 9, aux.data()).ok());  // beyond the document
}

// A batch with its states as they are stored: half the bytes, the same numbers, from the batch or the store.
TEST(StoreRows, AreTheStoredOnesOfTheBatch) {
  const StoreHeader header = small_header();
  const auto store = store_of("stored_rows", header, {{2, 9}, {1, 6}, {0, 4}});
  PackedBatch filled, stored, left;
  ASSERT_TRUE(fill_batch(*store, {2, 0, 1}, 20, &filled).ok());
  ASSERT_TRUE(fill_batch(*store, {2, 0, 1}, 20, &stored, BatchStates::kStored).ok());
  ASSERT_TRUE(fill_batch(*store, {2, 0, 1}, 20, &left, BatchStates::kInStore).ok());
  EXPECT_EQ(stored.form, StateForm::kBF16);
  EXPECT_TRUE(stored.aux_hidden_states.empty() && stored.last_hidden_states.empty());
  EXPECT_EQ(2 * stored.stored_aux.size(), 4 * filled.aux_hidden_states.size());
  EXPECT_EQ(stored.input_ids, filled.input_ids);
  StoreRows rows(*store);
  for (const PackedBatch* batch : {&stored, &left}) {
    rows.use(*batch);
    ASSERT_EQ(rows.form(), StateForm::kBF16);
    const std::int64_t width = header.hidden, aux_width = width * (header.slots() - 1);
    for (const auto& [first, n] : {std::pair{0, 3}, {3, 8}, {4, 2}, {11, 5}}) {
      std::vector<std::uint16_t> aux(static_cast<std::size_t>(n * aux_width)),
          last(static_cast<std::size_t>(n * width));
      ASSERT_TRUE(rows.read_stored(true, first, n, {aux.data(), nullptr, n}).ok());
      ASSERT_TRUE(rows.read_stored(false, first, n, {last.data(), nullptr, n}).ok());
      for (std::size_t i = 0; i < aux.size(); ++i)
        ASSERT_EQ(bf16_to_f32(aux[i]),
                  filled.aux_hidden_states[static_cast<std::size_t>(first * aux_width) + i]);
      for (std::size_t i = 0; i < last.size(); ++i)
        ASSERT_EQ(bf16_to_f32(last[i]),
                  filled.last_hidden_states[static_cast<std::size_t>(first * width) + i]);
      std::vector<float> floats(aux.size());  // the old way, from the store
      ASSERT_TRUE(rows.read_aux(first, n, floats.data()).ok());
      EXPECT_TRUE(
          std::equal(floats.begin(), floats.end(), filled.aux_hidden_states.begin() + first * aux_width));
    }
  }
  ASSERT_TRUE(fill_batch(*store, {2, 0, 1}, 20, &stored).ok());  // used again as fp32
  EXPECT_EQ(stored.aux_hidden_states, filled.aux_hidden_states);
  EXPECT_TRUE(stored.stored_aux.empty());
}

TEST(PackPlan, EveryUsableDocumentOnceAndNoBatchTooFull) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto shapes = random_shapes(60, 40, seed);
    const auto store = store_of("s" + std::to_string(seed), small_header(), shapes);
    for (const std::int64_t limit : {2, 5, 17, 40, 64}) {
      const auto plan = PackPlan::make(*store, all_of(*store), {limit, seed, true});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      PackingReport naive;
      std::set<std::size_t> expected;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const auto [prompt, tokens] = shapes[i];
        const std::int64_t kept = std::min<std::int64_t>(tokens, limit), first = std::max(prompt, 1);
        if (tokens < 2)
          ++naive.dropped_empty;
        else if (prompt >= tokens)
          ++naive.dropped_unsupervised;
        else if (kept <= first)
          ++naive.dropped_beyond_limit;
        else {
          expected.insert(i);
          naive.real_tokens += kept - 1;
          naive.supervised_tokens += kept - first;
          naive.cut_documents += kept < tokens;
        }
      }
      const PackingReport& report = plan->report();
      EXPECT_EQ(report.documents, static_cast<std::int64_t>(expected.size()));
      EXPECT_EQ(report.real_tokens, naive.real_tokens);
      EXPECT_EQ(report.supervised_tokens, naive.supervised_tokens);
      EXPECT_EQ(report.cut_documents, naive.cut_documents);
      EXPECT_EQ(report.dropped_empty, naive.dropped_empty);
      EXPECT_EQ(report.dropped_unsupervised, naive.dropped_unsupervised);
      EXPECT_EQ(report.dropped_beyond_limit, naive.dropped_beyond_limit);
      const auto batches = plan->epoch(3);
      EXPECT_EQ(report.batches, static_cast<std::int64_t>(batches.size()));
      std::set<std::size_t> seen;
      PackedBatch batch;
      for (const auto& documents : batches) {
        for (const std::size_t document : documents) EXPECT_TRUE(seen.insert(document).second);
        ASSERT_TRUE(fill_batch(*store, documents, limit, &batch).ok());
        EXPECT_GT(std::count(batch.loss_mask.begin(), batch.loss_mask.end(), 1), 0);
      }
      EXPECT_EQ(seen, expected);
      EXPECT_DOUBLE_EQ(report.fill_ratio,
                       static_cast<double>(report.real_tokens) / static_cast<double>(report.batches * limit));
    }
  }
}

TEST(PackPlan, OrderIsAPureFunctionOfSeedAndEpoch) {
  const auto store = store_of("s", small_header(), random_shapes(80, 30, 5));
  const auto plan = *PackPlan::make(*store, all_of(*store), {64, 7, true});
  const auto again = *PackPlan::make(*store, all_of(*store), {64, 7, true});
  const auto other = *PackPlan::make(*store, all_of(*store), {64, 8, true});
  EXPECT_EQ(plan.epoch(2), again.epoch(2));
  EXPECT_EQ(plan.epoch(2), plan.epoch(2));
  EXPECT_NE(plan.epoch(2), plan.epoch(1));
  EXPECT_NE(plan.epoch(2), other.epoch(2));
  const auto as_set = [](std::vector<std::vector<std::size_t>> batches) {
    for (auto& batch : batches) std::sort(batch.begin(), batch.end());
    std::sort(batches.begin(), batches.end());
    return batches;
  };
  EXPECT_EQ(as_set(plan.epoch(2)), as_set(other.epoch(5)));  // the batches themselves depend on lengths only
  const auto fixed = *PackPlan::make(*store, all_of(*store), {64, 7, false});
  EXPECT_EQ(fixed.epoch(0), fixed.epoch(9));
}

TEST(PackPlan, SampleDataFillsMoreThan95Percent) {
  std::ifstream lengths(EAGLET_TESTDATA "/batch/sample_lengths.txt");
  std::vector<Shape> shapes, training;
  for (Shape shape; lengths >> shape.prompt >> shape.tokens;) shapes.push_back(shape);
  ASSERT_EQ(shapes.size(), 400u);
  StoreHeader header = small_header();
  header.hidden = 1;
  const auto store = store_of("s", header, shapes);
  EXPECT_GT(PackPlan::make(*store, all_of(*store), {2048, 42, true})->report().fill_ratio, 0.95);
  std::vector<std::size_t> train;
  for (std::size_t i = 0; i < 400; ++i)
    if (i % 10 != 0) train.push_back(i);
  const auto report = PackPlan::make(*store, train, {2048, 42, true})->report();
  EXPECT_EQ(report.documents, 360);
  EXPECT_GT(report.fill_ratio, 0.95);
}

TEST(PackPlan, LimitThatRemovesEverythingWorthLearning) {
  const StoreHeader header = small_header();
  const auto store_from = [&](const std::string& file) {
    const auto rows = read_conversations(EAGLET_TESTDATA "/cases/05-truncation-leaves-nothing/" + file);
    EXPECT_TRUE(rows.ok());
    std::vector<DocumentStates> documents;
    for (const Conversation& row : rows->conversations) {
      documents.push_back(random_document(header, 0, static_cast<int>(row.input_ids.size())));
      documents.back().id = row.id;
      documents.back().input_ids = row.input_ids;
      documents.back().loss_mask = row.loss_mask;
    }
    const std::string directory = test_directory(file);
    write_store(directory, header, documents);
    return std::move(*StoreReader::open(directory));
  };
  const auto all = store_from("all.jsonl");
  const auto plan = PackPlan::make(*all, all_of(*all), {32, 0, false});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->report().documents, 2);  // t2 and t3
  EXPECT_EQ(plan->report().cut_documents, 1);
  EXPECT_EQ(plan->report().supervised_tokens, 2 + 10);  // t2 keeps its tokens 30 and 31
  EXPECT_EQ(plan->report().dropped_beyond_limit, 1);
  EXPECT_EQ(plan->report().dropped_unsupervised, 1);

  const auto only_t1 = store_from("only_t1.jsonl");
  const auto nothing = PackPlan::make(*only_t1, all_of(*only_t1), {32, 0, false});
  EXPECT_EQ(nothing.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(nothing.status().what(), HasSubstr("no supervised token is left under --max-seq-len 32"));
  EXPECT_THAT(nothing.status().todo(), HasSubstr("--max-seq-len 37 or more"));
  EXPECT_FALSE(PackPlan::make(*only_t1, all_of(*only_t1), {36, 0, false}).ok());
  EXPECT_TRUE(PackPlan::make(*only_t1, all_of(*only_t1), {37, 0, false}).ok());
}

TEST(PackPlan, UselessLimitsAndEmptySetsAreErrors) {
  const auto store = store_of("s", small_header(), {{9, 5}, {0, 1}});
  for (const std::int64_t limit : {-5, 0, 1})
    EXPECT_EQ(PackPlan::make(*store, {0}, {limit, 0, true}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(PackPlan::make(*store, {}, {8, 0, true}).status().what(), HasSubstr("no documents"));
  const auto nothing = PackPlan::make(*store, all_of(*store), {8, 0, true});
  EXPECT_THAT(nothing.status().what(), HasSubstr("1 have no supervised token, 1 are shorter than 2"));
  EXPECT_EQ(PackPlan::make(*store, {5}, {8, 0, true}).status().code(), StatusCode::kInternal);
}

std::vector<PackedBatch> first_batches(const StoreReader& store, const PackPlan& plan, int workers,
                                       std::int64_t epoch, std::int64_t batch, int count) {
  auto loader = BatchLoader::start(store, plan, 64, workers, epoch, batch);
  EXPECT_TRUE(loader.ok()) << loader.status().message();
  std::vector<PackedBatch> batches;
  for (int i = 0; i < count; ++i) {
    auto next = (*loader)->next();
    EXPECT_TRUE(next.ok()) << next.status().message();
    batches.push_back(**next);
    (*loader)->recycle(std::move(*next));
  }
  EXPECT_GE((*loader)->waited_seconds(), 0.0);
  return batches;
}

TEST(BatchLoader, SameBatchesInOrderForAnyNumberOfWorkers) {
  const auto store = store_of("s", small_header(), random_shapes(60, 40, 11));
  const auto plan = *PackPlan::make(*store, all_of(*store), {64, 3, true});
  const int per_epoch = static_cast<int>(plan.report().batches);
  ASSERT_GT(per_epoch, 5);
  const auto reference = first_batches(*store, plan, 1, 0, 0, 3 * per_epoch);
  for (int i = 0; i < 3 * per_epoch; ++i)
    expect_batch_is_the_data_shift(*store, plan.epoch(i / per_epoch)[static_cast<std::size_t>(i % per_epoch)],
                                   64, reference[i]);
  for (const int workers : {2, 3, 7}) {
    const auto batches = first_batches(*store, plan, workers, 0, 0, 3 * per_epoch);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      ASSERT_EQ(batches[i].documents, reference[i].documents);
      ASSERT_EQ(batches[i].aux_hidden_states, reference[i].aux_hidden_states);
    }
  }
  for (int start = 0; start <= per_epoch;
       ++start) {  // resume anywhere; the last one is the next epoch's first
    const auto batches = first_batches(*store, plan, 2, 1, start, 3);
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(batches[i].documents,
                reference[static_cast<std::size_t>(per_epoch + start + i) % reference.size()].documents)
          << start;
  }
  const auto next_epoch = first_batches(*store, plan, 2, 0, per_epoch, 1);
  EXPECT_EQ(next_epoch[0].documents, reference[static_cast<std::size_t>(per_epoch)].documents);
}

TEST(BatchLoader, FillsOnlyALittleAhead) {
  const auto store = store_of("s", small_header(), random_shapes(60, 40, 12));
  const auto plan = *PackPlan::make(*store, all_of(*store), {64, 3, true});
  auto loader = std::move(*BatchLoader::start(*store, plan, 64, 2, 0, 0));
  std::set<const PackedBatch*> memory;
  for (int i = 0; i < 50; ++i) {
    auto batch = loader->next();
    ASSERT_TRUE(batch.ok());
    memory.insert(batch->get());
    loader->recycle(std::move(*batch));
  }
  EXPECT_LE(memory.size(), 2u * 2u + 1u);
}

TEST(BatchLoader, CanBeLeftAtAnyMoment) {
  const auto store = store_of("s", small_header(), random_shapes(60, 40, 13));
  const auto plan = *PackPlan::make(*store, all_of(*store), {64, 3, true});
  for (int taken = 0; taken < 40; ++taken) {
    auto loader = std::move(*BatchLoader::start(*store, plan, 64, 1 + taken % 4, 0, 0));
    for (int i = 0; i < taken % 9; ++i) ASSERT_TRUE(loader->next().ok());
  }
}

TEST(BatchLoader, DamagedDocumentComesBackAsAnErrorInItsPlace) {
  const StoreHeader header = small_header();
  const std::string directory = test_directory();
  std::vector<DocumentStates> documents;
  for (int i = 0; i < 6; ++i) {
    documents.push_back(random_document(header, i, 30));
    documents.back().loss_mask[5] = 1;
  }
  write_store(directory, header, documents);
  const std::string path = directory + "/000000.shard";
  const std::string bytes = *read_file(path);
  const std::size_t at =
      bytes.find(std::string(reinterpret_cast<const char*>(documents[3].states.data()), 40));
  ASSERT_NE(at, bytes.npos);
  poke(path, at, static_cast<char>(bytes[at] ^ 1));
  const auto store = std::move(*StoreReader::open(directory));
  const auto plan = *PackPlan::make(*store, all_of(*store), {30, 3, false});
  auto loader = std::move(*BatchLoader::start(*store, plan, 30, 3, 0, 0));
  for (const auto& batch : plan.epoch(0)) {
    const auto next = loader->next();
    ASSERT_EQ(next.ok(), batch != std::vector<std::size_t>{3});
    if (!next.ok()) {
      EXPECT_EQ(next.status().code(), StatusCode::kDataLoss);
      EXPECT_THAT(next.status().where(), HasSubstr("'doc3'"));
    }
  }
}

TEST(BatchLoader, ImpossibleStartsAreRefused) {
  const auto store = store_of("s", small_header(), {{0, 5}, {0, 6}});
  const auto plan = *PackPlan::make(*store, all_of(*store), {8, 3, false});
  const auto refused = [&](int workers, std::int64_t epoch, std::int64_t batch) {
    return BatchLoader::start(*store, plan, 8, workers, epoch, batch).status().code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(0, 0, 0));
  EXPECT_TRUE(refused(2, -1, 0));
  EXPECT_TRUE(refused(2, 0, -1));
  EXPECT_TRUE(refused(2, 0, plan.report().batches + 1));
  EXPECT_FALSE(refused(2, 0, plan.report().batches));
}

TEST(BatchLoader, RanksTogetherGetEveryBatchOnce) {
  const auto store = store_of("s", small_header(), {{0, 5}, {0, 6}, {0, 7}, {0, 8}, {0, 8}, {0, 7}, {0, 7}});
  const auto plan = *PackPlan::make(*store, all_of(*store), {8, 3, true});
  const std::int64_t batches = plan.report().batches;
  ASSERT_EQ(batches, 7);  // an uneven number for 2 and 3 ranks
  for (const std::int64_t ranks : {2, 3}) {
    for (const std::int64_t first : {std::int64_t{0}, 2 * ranks, batches}) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        auto loader = std::move(*BatchLoader::start(*store, plan, 8, 2, 4, first, {rank, ranks}));
        for (std::int64_t epoch = 4; epoch < 7; ++epoch) {
          const auto order = plan.epoch(epoch);
          for (std::int64_t i = (epoch == 4 ? first : 0) + rank; i < batches; i += ranks)
            EXPECT_EQ((*loader->next())->documents, order[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
  EXPECT_FALSE(BatchLoader::start(*store, plan, 8, 2, 0, 0, {7, 8}).ok());  // it would never get one
}

}  // namespace
}  // namespace eaglet
