#pragma once
// Messages to tokens, by the model's own template.
#include "apps/cli/common.h"
#include "text/chat_template.h"

namespace pellucid::cli {

/// Errors: kUnsupported when the model has no template; those of the template.
Result<std::vector<int64_t>> encode_chat(const engine::LoadedModel& loaded,
                                         const std::vector<text::Message>& messages);

}  // namespace pellucid::cli
