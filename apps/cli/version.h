#pragma once
#include <string>

namespace pellucid::cli {

/// Versions, processor, kernels chosen and threads: for `--version`; JSON when asked.
std::string version_text(bool json);

}  // namespace pellucid::cli
