#include "apps/commands.h"

namespace eaglet::apps {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all = {
      // In the order of a run: one line a command.
      {"run", "all stages of a recipe; finished ones are skipped", add_run},
      {"plan", "tells bytes of states and whether they fit, before anything starts", add_plan},
      {"generate", "answers prompts with the target model", add_generate},
      {"prepare", "turns conversations that are there into training sequences", add_prepare},
      {"extract", "keeps the target's hidden states over conversations", add_extract},
      {"store", "merges, splits, converts and repairs stores of states", add_store},
      {"vocab", "chooses the ids a draft speaks; maps of other tools in and out", add_vocab},
      {"train", "trains a draft on a state store", add_train},
      {"evaluate", "measures acceptance, held out and in llama.cpp", add_evaluate},
      {"export", "writes a draft for llama.cpp or vLLM", add_export},
      {"import", "takes in a draft that another tool wrote", add_import},
      {"inspect", "says what a file is, and checks it", add_inspect},
      {"watch", "a live view of any training run, from outside", add_watch, false},
      {"doctor", "one verdict on a run: healthy, stuck or dead, and what to do", add_doctor, false},
      {"wait", "waits until a run or a server has come so far", add_wait, false},
      {"launch", "starts any trainer so that it can be judged well", add_launch, false},
      {"orphans", "what dead runs left: processes and GPU memory", add_orphans, false},
      {"bench", "measures speed on this machine, as a share of what it could do", add_bench},
  };
  return all;
}

}  // namespace eaglet::apps
