#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "formats/config_fields.h"
#include "draft/draft_config.h"

namespace eaglet {
namespace {

Status bad_value(std::string what, std::string todo = {}) {
  return Status(StatusCode::kConfig, std::move(what), {}, std::move(todo));
}

bool is_true(const Json& object, const char* name) {
  const Json* field = ConfigFields(object).find(name);
  return field != nullptr && field->is_boolean() && field->get<bool>();
}

// Settings of other models that would change the arithmetic. Each is fine only when absent, null, or neutral.
Status refuse_other_arithmetic(const Json& object) {
  for (const char* name :
       {"qkv_bias", "tie_word_embeddings", "parallel_drafting", "use_aux_norm", "use_mtp_layernorm"}) {
    if (is_true(object, name))
      return bad_value(fmt::format("\"{}\": true is not supported in a draft", name));
  }
  for (const char* name :
       {"q_lora_rank", "kv_lora_rank", "num_experts", "num_local_experts", "n_routed_experts",
        "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}) {
    if (ConfigFields(object).find(name) != nullptr)
      return bad_value(fmt::format("\"{}\" is not supported in a draft", name));
  }
  for (const char* name : {"partial_rotary_factor", "attention_multiplier", "embedding_multiplier",
                           "residual_multiplier", "logits_scaling", "logit_scale", "scale_emb"}) {
    const Json* field = ConfigFields(object).find(name);
    if (field != nullptr && *field != Json(1) && *field != Json(1.0)) {
      return bad_value(fmt::format("\"{}\": {} is not supported in a draft", name, json_line(*field)));
    }
  }
  return {};
}

Status check_kind(const Json& top, const Json& layer) {
  std::string kind, model;
  ConfigFields fields(top), layer_fields(layer);
  fields.read("speculators_model_type", &kind);
  layer_fields.read("model_type", &model);
  EAGLET_RETURN_IF_ERROR(fields.status());
  EAGLET_RETURN_IF_ERROR(layer_fields.status());
  if (!kind.empty() && kind != "eagle3")
    return bad_value(fmt::format("a \"{}\" draft; only eagle3 drafts are read", kind));
  if (!model.empty() && model != "llama" && model != "qwen3") {
    return bad_value(fmt::format("draft layers of type \"{}\"; \"llama\" and \"qwen3\" are known", model));
  }
  const Json* architectures = fields.find("architectures");
  if (architectures == nullptr) return {};
  static constexpr std::array kKnown = {
      "Eagle3DraftModel",      "Eagle3Speculator", "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM",
      "LlamaEagle3DraftModel", "LlamaForCausalLM", "Eagle3Qwen3ForCausalLM"};
  const std::string first =
      architectures->is_array() && !architectures->empty() && architectures->front().is_string()
          ? architectures->front().get<std::string>()
          : json_line(*architectures);
  if (std::find(kKnown.begin(), kKnown.end(), first) == kKnown.end()) {
    return bad_value(fmt::format("architecture \"{}\" is not an EAGLE-3 draft we know", first));
  }
  return {};
}

Result<std::vector<std::int32_t>> layer_list(const Json& value, const char* name, std::int32_t shift) {
  std::vector<std::int32_t> layers;
  if (!value.is_array() || value.size() > 256)
    return bad_value(fmt::format("\"{}\" is not a list of layer numbers", name));
  for (const Json& item : value) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < 0 || item.get<std::int64_t>() > 100000) {
      return bad_value(fmt::format("\"{}\" holds {}, which is not a layer number", name, json_line(item)));
    }
    layers.push_back(item.get<std::int32_t>() + shift);
  }
  return layers;
}

// Two conventions share one key name: at the top level vLLM's (id k = input of layer k), inside eagle_config
// the number of the layer whose output is taken, which is one less. We keep vLLM's.
Status read_aux_layers(const Json& top, DraftConfig* c) {
  constexpr const char* kKey = "eagle_aux_hidden_state_layer_ids";
  const ConfigFields fields(top);
  std::vector<std::int32_t> by_input, by_output;
  if (const Json* ids = fields.find(kKey); ids != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(by_input, layer_list(*ids, kKey, 0));
  }
  if (const Json* nested = fields.find("eagle_config"); nested != nullptr) {
    if (const Json* ids = ConfigFields(*nested).find(kKey); ids != nullptr) {
      EAGLET_ASSIGN_OR_RETURN(by_output,
                              layer_list(*ids, "eagle_config.eagle_aux_hidden_state_layer_ids", 1));
    }
  }
  if (!by_input.empty() && !by_output.empty() && by_input != by_output) {
    return bad_value(
        fmt::format(
            "\"{}\" at the top level (inputs of layers) and inside \"eagle_config\" (outputs of layers) name "
            "different states",
            kKey),
        "say which with --target-layer-ids, counted as inputs of layers");
  }
  c->aux_layers = by_input.empty() ? by_output : by_input;
  std::int64_t count = c->num_aux();
  ConfigFields counted(top);
  counted.read("num_aux_hidden_states", &count);
  EAGLET_RETURN_IF_ERROR(counted.status());
  if (!c->aux_layers.empty() && count != c->num_aux()) {
    return bad_value(
        fmt::format("num_aux_hidden_states is {}, but {} layers are listed", count, c->num_aux()));
  }
  return {};
}

Status check_eagle_config(const Json& top) {
  const Json* nested = ConfigFields(top).find("eagle_config");
  if (nested == nullptr) return {};
  EAGLET_RETURN_IF_ERROR(refuse_other_arithmetic(*nested));
  for (const char* name :
       {"use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm"}) {
    bool value = true;
    ConfigFields fields(*nested);
    fields.read(name, &value);
    EAGLET_RETURN_IF_ERROR(fields.status());
    if (!value) return bad_value(fmt::format("\"eagle_config.{}\": false is not supported", name));
  }
  if (is_true(*nested, "parallel_draft"))
    return bad_value("\"eagle_config.parallel_draft\": true is not supported");
  return {};
}

Status read_shape(const Json& top, const Json& layer, DraftConfig* c) {
  ConfigFields fields(layer), top_fields(top);
  fields.require("hidden_size", &c->hidden);
  fields.require("intermediate_size", &c->intermediate);
  fields.require("num_attention_heads", &c->num_heads);
  fields.require("vocab_size", &c->vocab);
  c->num_kv_heads = c->num_heads;
  fields.read("num_key_value_heads", &c->num_kv_heads);
  c->head_dim = c->num_heads > 0 ? c->hidden / c->num_heads : 0;
  fields.read("head_dim", &c->head_dim);
  fields.read("num_hidden_layers", &c->num_layers);
  fields.read("hidden_act", &c->hidden_act);
  c->rms_norm_eps = 1e-6;  // transformers' default for llama and qwen3
  fields.read("rms_norm_eps", &c->rms_norm_eps);
  fields.read("attention_bias", &c->attention_bias);
  fields.read("mlp_bias", &c->mlp_bias);
  c->max_position_embeddings = 2048;
  fields.read("max_position_embeddings", &c->max_position_embeddings);
  fields.read_token("bos_token_id", &c->bos_id);
  fields.read_token("eos_token_id", &c->eos_id);
  std::string model;
  fields.read("model_type", &model);
  c->qk_norm = model == "qwen3";
  c->draft_vocab = c->vocab;
  top_fields.read("draft_vocab_size", &c->draft_vocab);
  c->target_hidden = c->hidden;
  top_fields.read("target_hidden_size", &c->target_hidden);
  EAGLET_RETURN_IF_ERROR(fields.status());
  return top_fields.status();
}

Status read_flags(const Json& top, bool flat, DraftConfig* c) {
  ConfigFields fields(top);
  fields.read("norm_before_residual", &c->norm_before_residual);
  fields.read("norm_before_fc", &c->norm_before_fc);
  fields.read("fc_norm", &c->fc_norm);
  fields.read("norm_output", &c->norm_output);
  EAGLET_RETURN_IF_ERROR(fields.status());
  // In flat configs true has two meanings: the normed state is carried on (NeMo, the servers), or the head
  // reads the normed state (SpecForge), which is what happens anyway. A guess would cost acceptance without a
  // word.
  std::string architecture;
  if (const Json* list = fields.find("architectures");
      list != nullptr && list->is_array() && !list->empty()) {
    architecture = list->front().is_string() ? list->front().get<std::string>() : "";
  }
  const bool own = fields.find("eaglet") != nullptr;  // written by us: the carried state
  if (flat && c->norm_output && !own && architecture != "LlamaEagle3DraftModel") {
    return bad_value(
        "\"norm_output\": true means two different things in configs of this kind",
        "set it to true in a speculators-style config if the normed state is carried to the next "
        "step, else to false");
  }
  return {};
}

Status read_windows(const Json& layer, DraftConfig* c) {
  std::int64_t window = 0;
  ConfigFields fields(layer);
  fields.read("sliding_window", &window);
  EAGLET_RETURN_IF_ERROR(fields.status());
  const Json* types = fields.find("layer_types");
  if (types == nullptr) {
    const bool off = fields.find("use_sliding_window") != nullptr && !is_true(layer, "use_sliding_window");
    if (window > 0 && !off) {
      return bad_value("\"sliding_window\" without \"layer_types\": which layers use it is not said",
                       "add layer_types, or set sliding_window to null");
    }
    return {};
  }
  if (!types->is_array() || static_cast<std::int64_t>(types->size()) != c->num_layers) {
    return bad_value(fmt::format("\"layer_types\" must name {} layers", c->num_layers));
  }
  bool any = false;
  std::vector<std::int64_t> windows;
  for (const Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return bad_value(fmt::format("layer type {} is not known", json_line(type)));
    }
    const bool slides = type == "sliding_attention";
    if (slides && window < 1) return bad_value("a layer slides, but \"sliding_window\" is not given");
    windows.push_back(slides ? window : 0);
    any = any || slides;
  }
  if (any) c->sliding_window = windows;
  return {};
}

Status read_verifier(const Json& top, DraftConfig* c) {
  const Json* speculators = ConfigFields(top).find("speculators_config");
  if (speculators == nullptr) return {};
  const ConfigFields fields(*speculators);
  if (const Json* verifier = fields.find("verifier"); verifier != nullptr) {
    ConfigFields inner(*verifier);
    inner.read("name_or_path", &c->verifier_name);
    EAGLET_RETURN_IF_ERROR(inner.status());
    const Json* list = inner.find("architectures");
    if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string()) {
      c->verifier_architecture = list->front().get<std::string>();
    }
  }
  const Json* methods = fields.find("proposal_methods");
  if (methods == nullptr || !methods->is_array() || methods->empty()) return {};
  ConfigFields method(methods->front());
  method.read("speculative_tokens", &c->ttt_steps);
  return method.status();
}

Result<DraftConfig> read_config(const Json& top) {
  if (!top.is_object()) return bad_value("a draft config must be a JSON object");
  const Json* nested = ConfigFields(top).find("transformer_layer_config");
  const Json& layer = nested != nullptr ? *nested : top;
  EAGLET_RETURN_IF_ERROR(check_kind(top, layer));
  EAGLET_RETURN_IF_ERROR(refuse_other_arithmetic(top));
  EAGLET_RETURN_IF_ERROR(refuse_other_arithmetic(layer));
  EAGLET_RETURN_IF_ERROR(check_eagle_config(top));
  DraftConfig c;
  EAGLET_RETURN_IF_ERROR(read_shape(top, layer, &c));
  EAGLET_RETURN_IF_ERROR(read_flags(top, nested == nullptr, &c));
  EAGLET_RETURN_IF_ERROR(read_aux_layers(top, &c));
  EAGLET_RETURN_IF_ERROR(read_windows(layer, &c));
  EAGLET_RETURN_IF_ERROR(read_verifier(top, &c));
  EAGLET_ASSIGN_OR_RETURN(c.rope, rope_from_json(layer));
  if (const Json* own = ConfigFields(top).find("eaglet"); own != nullptr) {
    ConfigFields fields(*own);
    fields.read("target_identity", &c.target_identity);
    EAGLET_RETURN_IF_ERROR(fields.status());
  }
  return c;
}

}  // namespace

Result<DraftConfig> draft_config_from_json(const Json& json) {
  auto config = read_config(json);
  if (!config.ok() || config->aux_layers.empty()) return config;  // the caller names the layers, then checks
  EAGLET_RETURN_IF_ERROR(check_draft_config(*config));
  return config;
}

}  // namespace eaglet
