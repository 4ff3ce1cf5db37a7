#include <cstdio>

#include "apps/command.h"
#include "apps/recipe.h"
#include "apps/report_html.h"
#include "apps/run_pipeline.h"
#include "apps/run_plan.h"
#include "apps/run_report.h"
#include "apps/terminal.h"
#include "base/files.h"
#include "runlog/log_record.h"

namespace eaglet::apps {
namespace {

struct RunFlags {
  std::string recipe, output_dir, model, redo;
  std::vector<std::string> settings;
  bool drop_states = false, print_config = false, plan = false;
};

Status resolve(const RunFlags& flags, Recipe* recipe) {
  EAGLET_RETURN_IF_ERROR(recipe->read(flags.recipe));
  for (const std::string& setting : flags.settings) EAGLET_RETURN_IF_ERROR(recipe->set(setting));
  if (!flags.output_dir.empty()) EAGLET_RETURN_IF_ERROR(recipe->set("run.output_dir=" + flags.output_dir));
  if (!flags.model.empty()) EAGLET_RETURN_IF_ERROR(recipe->set("model.path=" + flags.model));
  if (flags.drop_states) EAGLET_RETURN_IF_ERROR(recipe->set("run.drop_states=true"));
  return recipe->check().at(flags.recipe);
}

Result<Json> write_reports(const Recipe& recipe, const RunPipeline& pipeline) {
  const RunPaths& paths = pipeline.paths();
  const Json report = run_report(recipe, pipeline);
  EAGLET_RETURN_IF_ERROR(write_json_file(paths.report_json(), report));
  EAGLET_ASSIGN_OR_RETURN(const LogFile log, read_log(paths.draft() + "/log.jsonl"));
  EAGLET_RETURN_IF_ERROR(write_file_atomic(
      paths.report_html(), report_html(report, effective_records(log.records), recipe.to_toml(false))));
  return report;
}

Status run(const RunFlags& flags, Context& context) {
  Recipe recipe;
  EAGLET_RETURN_IF_ERROR(resolve(flags, &recipe));
  if (flags.print_config) {
    std::fputs(recipe.to_toml(true).c_str(), stdout);
    return {};
  }
  if (flags.plan) {
    EAGLET_ASSIGN_OR_RETURN(const Json plan, plan_run(recipe));
    std::fputs((context.json ? json_line(plan) + "\n" : run_plan_text(plan)).c_str(), stdout);
    return {};
  }
  const RunPaths paths(recipe.output_dir);
  // The stages lock what they write (states/, draft/); this lock is that of the run itself.
  EAGLET_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::take(paths.stages()));
  if (!flags.redo.empty()) EAGLET_RETURN_IF_ERROR(forget_from(paths, flags.redo));
  EAGLET_RETURN_IF_ERROR(write_file_atomic(paths.recipe(), recipe.to_toml(false)));
  RunPipeline pipeline(recipe, context);
  if (const Status status = pipeline.run(); !status.ok()) {
    if (status.code() != StatusCode::kInterrupted) return status;
    return status.advise("the same command goes on from here");
  }
  EAGLET_ASSIGN_OR_RETURN(const Json report, write_reports(recipe, pipeline));
  const std::string text = context.json ? report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                                        : "\n" + report_table(report, context.color);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace

Run add_run(CLI::App& app) {
  app.footer(
      "  eaglet run recipes/quickstart.toml\n"
      "  eaglet run recipes/quickstart.toml --output-dir runs/b --set train.epochs=2\n"
      "  eaglet run recipes/quickstart.toml --redo train     throw the draft away and train it again\n"
      "  eaglet run recipes/kimi-k2.5.toml --plan            bytes, requests, work and hours before anything "
      "starts\n"
      "  eaglet run recipes/quickstart.toml --print-config   every setting and where it comes from");
  auto flags = std::make_shared<RunFlags>();
  app.add_option("RECIPE", flags->recipe, "recipe in TOML (docs/recipes.md)")->required();
  app.add_option("--output-dir", flags->output_dir, "run directory, instead of the recipe's")
      ->type_name("DIR");
  app.add_option("--model", flags->model,
                 "target model (GGUF or transformers folder), instead of the recipe's")
      ->type_name("TARGET");
  app.add_option("--set", flags->settings, "one setting of the recipe, as often as needed")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--drop-states", flags->drop_states,
               "free the states once a checkpoint was read back and evaluated");
  app.add_option("--redo", flags->redo,
                 "throw away the results of this stage and of all later ones first: generate, extract, "
                 "train, evaluate, export, serve")
      ->type_name("STAGE");
  app.add_flag("--print-config", flags->print_config,
               "print the resolved recipe with the source of each value, run nothing");
  app.add_flag("--plan", flags->plan,
               "print every stage with requests, bytes, work and hours, and what it needs; run nothing");
  return [flags](Context& context) { return run(*flags, context); };
}

}  // namespace eaglet::apps
