#pragma once
// The JSON header of a safetensors file, taken apart without building a tree of it. Internal.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pellucid::files {

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> data_offsets;  // begin and end, from the start of the data
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Errors: kCorruptFile (not JSON, another structure, a key twice), beginning with `label`.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const std::string& label);

}  // namespace pellucid::files
