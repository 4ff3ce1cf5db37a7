#include "verifier/target_tokens.h"

#include "formats/transformers_target.h"
#include "verifier/folder_tokens.h"
#include "verifier/target.h"

namespace eaglet {

Result<std::unique_ptr<TargetTokens>> TargetTokens::open(const std::string& path) {
  if (is_transformers_target(path)) return open_folder_tokens(path);
  TargetOptions options;
  options.vocab_only = true;
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<Target> target, Target::load(path, options));
  return std::unique_ptr<TargetTokens>(std::move(target));
}

}  // namespace eaglet
