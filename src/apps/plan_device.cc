#include "apps/plan_device.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/terminal.h"
#include "apps/usage_error.h"
#include "base/clock.h"
#include "formats/json.h"

namespace eaglet::apps {
namespace {

DraftConfig shape_of(std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                     std::int64_t intermediate, std::int64_t vocab, std::int64_t draft_vocab) {
  DraftConfig c;
  c.hidden = c.target_hidden = hidden;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.intermediate = intermediate;
  c.vocab = vocab;
  c.draft_vocab = draft_vocab;
  c.aux_layers = {2, 16, 29};
  return c;
}

struct Shape {
  const char *name, *about;
  DraftConfig config;
};
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"reference", "draft of a 1T-parameter mixture of experts, width 7168",
       shape_of(7168, 64, 64, 128, 18432, 163840, 32000)},
      {"llama8b", "draft of an 8B Llama", shape_of(4096, 32, 8, 128, 14336, 128256, 32000)},
      {"smollm2", "draft of SmolLM2-135M", shape_of(576, 9, 3, 64, 1536, 49152, 16384)}};
  return all;
}

Result<PlannedStep> step_of(const PlanDeviceFlags& flags) {
  PlannedStep step = flags.step;
  if (!flags.draft.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(flags.draft + "/config.json"));
    EAGLET_ASSIGN_OR_RETURN(step.config, draft_config_from_json(json));
  } else {
    std::vector<std::string> names;
    for (const Shape& shape : shapes()) {
      names.push_back(shape.name);
      if (flags.shape == shape.name) step.config = shape.config;
    }
    if (step.config.hidden == 0)
      return flags_error("there is no shape \"" + flags.shape + "\"",
                         fmt::format("use {}, or --draft FOLDER", fmt::join(names, ", ")));
  }
  step.target_vocab = step.config.vocab;
  return step;
}

std::string ops_text(const PlannedOnDevice& one) {
  std::string text = fmt::format(
      "{} by op, one rank\n  op               share      ms    TFLOP      GB  launches  bound by\n",
      one.device.label);
  for (const OpTime& op : one.plan.ops)
    text += fmt::format("  {:15}  {:5.1f}%  {:6.2f}  {:7.2f}  {:6.2f}  {:8.0f}  {}\n", op.op.name,
                        100 * op.seconds / one.plan.compute_seconds, 1e3 * op.seconds, op.op.flops / 1e12,
                        op.op.bytes / 1e9, op.op.launches, op.bound_by_memory ? "memory" : "arithmetic");
  return text;
}

std::string memory_text(const PlannedOnDevice& one) {
  const DeviceMemory& m = one.plan.memory;
  return fmt::format(
      "{}: {:.1f} GB of {:.1f} ({}): parameters and moments {:.1f}, target's tables {:.1f}, activations "
      "{:.1f}, "
      "batches {:.1f}, runtime {:.1f}; {}\n",
      one.device.label, m.total() / 1e9, one.device.memory_bytes / 1e9,
      one.plan.fits ? "fits" : "DOES NOT FIT", m.parameters / 1e9, m.frozen / 1e9, m.activations / 1e9,
      m.batches / 1e9, m.runtime / 1e9,
      one.fitting_max_seq_len > 0 ? fmt::format("max_seq_len {} would fill it", one.fitting_max_seq_len)
                                  : std::string("no max_seq_len fits"));
}

Json ops_json(const DevicePlan& plan) {
  Json list = Json::array();
  for (const OpTime& op : plan.ops)
    list.push_back({{"op", op.op.name},
                    {"seconds", op.seconds},
                    {"tflop", op.op.flops / 1e12},
                    {"bytes", op.op.bytes},
                    {"launches", op.op.launches},
                    {"bound_by", op.bound_by_memory ? "memory" : "arithmetic"}});
  return list;
}

std::string plan_text(const PlanDeviceFlags& flags, const PlannedStep& step,
                      const std::vector<PlannedOnDevice>& all) {
  const ParameterCount count = count_parameters(step);
  std::string text = fmt::format(
      "{}: {:.4f} B trainable of {:.4f} B parameters; batches of {} tokens, documents of {}, {:.0f} % "
      "supervised, "
      "{} drafting steps; {:.2f} TFLOP needed a step\n",
      flags.draft.empty() ? flags.shape : flags.draft, static_cast<double>(count.trainable) / 1e9,
      static_cast<double>(count.total) / 1e9, step.max_seq_len, step.document_tokens,
      100 * step.supervised_share, step.ttt_steps, all.front().plan.needed_flops / 1e12);
  return text + planned_text(flags, all);
}

}  // namespace

Result<std::vector<PlannedOnDevice>> plan_on_devices(const DeviceChoice& choice, const PlannedStep& step) {
  std::vector<PlannedOnDevice> all;
  for (const std::string& name : choice.devices) {
    PlannedOnDevice one;
    EAGLET_ASSIGN_OR_RETURN(one.device, find_device(name));
    if (!choice.calibration.empty()) {
      EAGLET_ASSIGN_OR_RETURN(one.device, calibrate(one.device, choice.calibration));
    }
    one.link = one.device.nvlink_bandwidth > 0 ? Link::kNvlink : Link::kPcie;
    if (!choice.link.empty()) {
      EAGLET_ASSIGN_OR_RETURN(one.link, parse_link(choice.link));
    }
    for (const int ranks : choice.ranks) {
      one.ranks = ranks;
      EAGLET_ASSIGN_OR_RETURN(one.plan, plan_device(step, one.device, ranks, one.link));
      if (ranks == choice.ranks.front()) one.fitting_max_seq_len = longest_on_device(step, one.device, ranks);
      all.push_back(one);
    }
  }
  if (all.empty()) return flags_error("no ranks to plan for", "--ranks 1,4,8,64");
  return all;
}

std::string planned_text(const DeviceChoice& choice, const std::vector<PlannedOnDevice>& all) {
  std::string text;
  text +=
      "on paper: a limit by op (docs/gpu-plan.md), not a run; shapes and gaps between kernels cost more\n\n"
      "  device          ranks  link      step ms   tokens/s  per rank  MFU <=  of data sheet  gradients ms "
      "(shown)  binds\n";
  for (const PlannedOnDevice& one : all)
    text += fmt::format(
        "  {:14}  {:5}  {:8}  {:7.1f}  {:9.0f}  {:8.0f}  {:5.1f}%  {:12.1f}%  {:12.1f} ({:5.1f})  {}\n",
        one.device.name, one.ranks, one.ranks > 1 ? link_name(one.link) : "-", 1e3 * one.plan.step_seconds,
        one.plan.tokens_per_second, one.plan.tokens_per_second / one.ranks, 100 * one.plan.mfu_ratio,
        100 * one.plan.sheet_ratio, 1e3 * one.plan.reduce_seconds, 1e3 * one.plan.reduce_exposed_seconds,
        one.plan.fits ? one.plan.binds : "does not fit");
  text += "\n";
  const PlannedOnDevice* before = nullptr;
  for (const PlannedOnDevice& one : all) {
    if (before == nullptr || before->device.name != one.device.name) {
      text += memory_text(one);
      text += fmt::format("  bf16 products at {:.0f} TFLOP/s ({}), memory at {:.0f} % of {:.2f} TB/s ({})\n",
                          one.device.gemm_flops / 1e12, one.device.gemm_is_measured ? "measured" : "assumed",
                          100 * one.device.bandwidth_share, one.device.bandwidth / 1e12, one.device.origin);
      if (choice.by_op) text += ops_text(one);
    }
    before = &one;
  }
  return text;
}

Json planned_json(const PlannedOnDevice& one) {
  const DevicePlan& p = one.plan;
  const DeviceMemory& m = p.memory;
  return {{"device", one.device.name},
          {"ranks", one.ranks},
          {"link", link_name(one.link)},
          {"origin", one.device.origin},
          {"gemm_tflops", one.device.gemm_flops / 1e12},
          {"gemm_is_measured", one.device.gemm_is_measured},
          {"step_seconds", p.step_seconds},
          {"tokens_per_second", p.tokens_per_second},
          {"mfu_ratio", p.mfu_ratio},
          {"data_sheet_ratio", p.sheet_ratio},
          {"needed_tflop", p.needed_flops / 1e12},
          {"reduce_seconds", p.reduce_seconds},
          {"reduce_exposed_seconds", p.reduce_exposed_seconds},
          {"data_seconds", p.data_seconds},
          {"binds", p.binds},
          {"memory_bytes", m.total()},
          {"memory",
           {{"parameters", m.parameters},
            {"frozen", m.frozen},
            {"activations", m.activations},
            {"batches", m.batches},
            {"runtime", m.runtime}}},
          {"device_memory_bytes", one.device.memory_bytes},
          {"fits", p.fits},
          {"fitting_max_seq_len", one.fitting_max_seq_len},
          {"ops", ops_json(p)}};
}

void add_device_choice_flags(CLI::App& app, DeviceChoice* choice) {
  app.add_option("--ranks", choice->ranks, "how many devices, a line each")->delimiter(',');
  app.add_option("--link", choice->link, "nvlink, pcie or ethernet (default: the fastest the device has)");
  app.add_option("--calibration", choice->calibration, "measurements of the device, JSON")->type_name("FILE");
  app.add_flag("--by-op", choice->by_op, "the time of every op");
}

void add_plan_device_flags(CLI::App& app, PlanDeviceFlags* flags) {
  app.footer(
      "  eaglet plan device h200\n"
      "  eaglet plan device h100,h200,b200 --shape llama8b --ttt-steps 5 --max-seq-len 16384 --by-op\n"
      "  eaglet plan device rtx-pro-6000 --draft checkpoints/best --ranks 1,4 --link pcie --supervised-share "
      "0.6\n"
      "  eaglet plan device h200 --calibration h200.json --json");
  app.option_defaults()->always_capture_default();
  app.add_option("DEVICE", flags->devices, "a100, h100, h200, b200, rtx-pro-6000, 4090")
      ->required()
      ->delimiter(',');
  app.add_option("--shape", flags->shape, "the draft: reference, llama8b, smollm2")->type_name("NAME");
  app.add_option("--draft", flags->draft, "instead: a folder with a draft's config.json")->type_name("DIR");
  app.add_option("--max-seq-len", flags->step.max_seq_len, "tokens of a rank's batch, full");
  app.add_option("--document-tokens", flags->step.document_tokens, "of each document in it");
  app.add_option("--supervised-share", flags->step.supervised_share, "of each document, at its end");
  app.add_option("--ttt-steps", flags->step.ttt_steps, "drafting steps");
  app.add_flag("--train-head,--no-train-head{false}", flags->step.train_head, "is the draft's head trained?");
  add_device_choice_flags(app, flags);
}

Status plan_devices(const PlanDeviceFlags& flags, const Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const PlannedStep step, step_of(flags));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<PlannedOnDevice> all, plan_on_devices(flags, step));
  if (!context.json) {
    write_whole(STDOUT_FILENO, plan_text(flags, step, all));
    return {};
  }
  const ParameterCount count = count_parameters(step);
  Json json = {{"schema", 1},
               {"trainable_params", count.trainable},
               {"total_params", count.total},
               {"max_seq_len", step.max_seq_len},
               {"plans", Json::array()}};
  for (const PlannedOnDevice& one : all) json["plans"].push_back(planned_json(one));
  write_whole(STDOUT_FILENO, json.dump(2) + "\n");
  return {};
}

}  // namespace eaglet::apps
