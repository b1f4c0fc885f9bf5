#include "base/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace pellucid {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("pellucid");
    made->set_pattern("%^%l%$: %v");
    const char* level = std::getenv("PELLUCID_LOG");
    made->set_level(spdlog::level::from_str(level != nullptr ? level : "warning"));
    return made;
  }();
  return *instance;
}

}  // namespace

void log_debug(std::string_view text) { logger().debug("{}", text); }
void log_info(std::string_view text) { logger().info("{}", text); }
void log_warn(std::string_view text) { logger().warn("{}", text); }
void log_error(std::string_view text) { logger().error("{}", text); }

}  // namespace pellucid
