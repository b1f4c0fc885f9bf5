#include "files/json.h"

namespace pellucid::files {

Status check_json_depth(std::string_view text, int depth_max, std::string_view what) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) {
        return error(Code::kCorruptFile, "is this the right file?",
                     "{}, byte {}: nested more than {} deep", what, i, depth_max);
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return ok_status();
}

}  // namespace pellucid::files
