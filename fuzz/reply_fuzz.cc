#include "client/question.h"
#include "fuzz_input.h"

// Server replies of every kind: the first byte chooses kind and step, the rest is the body.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace eaglet;
  if (bytes == 0) return 0;
  const ServerFacts server{.url = "http://h", .kind = static_cast<ServerKind>(data[0] % 4), .model = "m"};
  const Sampling sampling;
  Asking asking;
  asking.messages = Json::array({{{"role", "user"}, {"content", "q"}}});
  if (data[0] & 4) asking.prompt_ids = {1, 2, 3};
  Question question(server, sampling, asking);
  HttpReply reply;
  reply.status = (data[0] & 8) ? 400 : 200;
  reply.body = as_text(data + 1, bytes - 1);
  for (int step = 0; step < 3; ++step) {
    promise(!question.path().empty() && !question.body().empty());
    if (!question.take(reply)) continue;
    const ServedAnswer& answer = question.answer();
    if (answer.outcome != Outcome::kAnswer) return 0;
    promise(answer.turn.is_object() && answer.turn["content"].is_string());
    for (const std::int32_t id : answer.answer_ids) promise(id >= 0);
    return 0;
  }
  return 0;
}
