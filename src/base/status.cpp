#include "base/status.h"

#include <array>

namespace pellucid {

const CodeInfo& code_info(Code code) {
  static constexpr std::array<CodeInfo, 15> kInfo{{
      {"ok", 200, false},
      {"invalid_argument", 400, false},
      {"not_found", 404, false},
      {"shape_mismatch", 400, false},
      {"out_of_order", 400, false},
      {"not_run", 422, false},
      {"over_budget", 413, false},
      {"out_of_memory", 507, false},
      {"corrupt_file", 422, false},
      {"unsupported", 501, false},
      {"io", 500, true},
      {"unavailable", 503, true},
      {"timeout", 504, true},
      {"cancelled", 499, false},
      {"internal", 500, false},
  }};
  return kInfo[static_cast<size_t>(code)];
}

std::string Status::message() const {
  std::string text = what;
  if (!hint.empty()) text += fmt::format(" ({})", hint);
  if (!where.empty()) text += fmt::format(" [at {}]", where);
  return text;
}

}  // namespace pellucid
