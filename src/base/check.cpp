#include "base/check.h"

#include "base/log.h"

namespace pellucid {

void fail_check(const char* condition, const char* file, int line, std::string what) {
  const std::string text = fmt::format(
      "internal error: {} ({} is false at {}:{}); please report this", what, condition, file, line);
  log_error(text);
  throw InternalError(text);
}

}  // namespace pellucid
