#pragma once
// One logger to standard error. PELLUCID_LOG=debug|info|warn|error|off sets the level (default
// warn).
#include <string_view>

namespace pellucid {

void log_debug(std::string_view text);
void log_info(std::string_view text);
void log_warn(std::string_view text);
void log_error(std::string_view text);

}  // namespace pellucid
