#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/target_model.h"
#include "tokenizer/special_frame.h"

struct llama_model;

namespace eaglet {

/// Texts to tokens and back as a target does it, and its chat template: of a GGUF file through libllama, of a
/// transformers folder by our own tokenizer. Not thread-safe.
class TargetTokens {
 public:
  /// Loads no weights. The errors of read_target_facts, Target::load and Tokenizer::load; kConfig: the
  /// tokenizer of a folder disagrees with its config.json.
  static Result<std::unique_ptr<TargetTokens>> open(const std::string& path);
  TargetTokens() = default;
  virtual ~TargetTokens() = default;
  TargetTokens(const TargetTokens&) = delete;
  TargetTokens& operator=(const TargetTokens&) = delete;

  virtual const TargetFacts& facts() const = 0;
  /// Of a rendered prompt. Special tokens written out in it ("<|im_end|>") become their ids.
  virtual Result<std::vector<std::int32_t>> prompt_ids(const std::string& text) const = 0;
  /// Of what stands behind a prompt.
  virtual Result<std::vector<std::int32_t>> answer_ids(const std::string& text) const = 0;
  /// Of a text alone, without the frame.
  virtual Result<std::vector<std::int32_t>> plain_ids(const std::string& text) const = 0;
  /// What the tokenizer itself puts around a text alone (bos, eos).
  virtual SpecialFrame frame() const = 0;
  /// The text of one token; special ones are written out only when asked for.
  virtual std::string piece(std::int32_t token, bool special) const = 0;
  /// Does this token end an answer?
  virtual bool ends(std::int32_t token) const = 0;
  /// Do prompt_ids begin with a bos token that the text does not have? A template's own bos text is then one
  /// too many.
  virtual bool adds_bos() const = 0;
  /// The texts that a template knows as bos_token and eos_token; empty: none.
  virtual std::string bos_text() const = 0;
  virtual std::string eos_text() const = 0;
  /// The chat template (Jinja), or the one for talks with tools; empty: there is none.
  virtual std::string chat_template(bool for_tools) const = 0;
  /// What libllama has loaded; nullptr of a folder.
  virtual llama_model* model() const { return nullptr; }
};

}  // namespace eaglet
