#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

#include "wire/program.h"
#include "wire/program_message.h"

namespace pellucid::wire {
namespace {

namespace util = google::protobuf::util;

/// json_util follows nested values by recursion: bound the depth before it sees them.
bool is_too_deep(std::string_view json, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<std::string> to_json(const Program& program) {
  proto::Program message;
  PELLUCID_TRY(to_message(program, message));
  util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return error(Code::kInvalidArgument, "names and strings must be UTF-8", "no JSON form: {}",
                 std::string(status.message()));
  }
  return json;
}

Result<Program> program_from_json(std::string_view json) {
  if (json.size() > kMessageBytesMax) {
    return error(Code::kOverBudget, "split the program",
                 "{} bytes of JSON, at most {} are accepted", json.size(), kMessageBytesMax);
  }
  // A list in an argument is three levels of JSON.
  if (is_too_deep(json, 4 * kDepthMax + 16)) {
    return error(Code::kCorruptFile, "lists may be nested 8 deep", "the JSON is nested too deep");
  }
  const google::protobuf::LogSilencer quiet;  // what is wrong goes into the Status
  proto::Program message;
  const auto status = util::JsonStringToMessage({json.data(), json.size()}, &message);
  if (!status.ok()) {
    return error(Code::kCorruptFile, "see proto/program.proto for the fields", "not a program: {}",
                 std::string(status.message()));
  }
  return from_message(message);
}

}  // namespace pellucid::wire
