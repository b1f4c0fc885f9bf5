#include "wire/program.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include "wire/program_message.h"

namespace pellucid::wire {
namespace {

namespace io = google::protobuf::io;

// Messages nested in a list nested kDepthMax deep, and Program, Node, NamedArg around it.
constexpr int kRecursionMax = 2 * kDepthMax + 8;

/// The version field alone, so that a newer program is refused as such and not as a corrupt one.
int32_t version_of(std::string_view bytes) {
  io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                             static_cast<int>(bytes.size()));
  constexpr uint32_t kVersionTag = 1 << 3;  // field 1, a number
  uint64_t version = 0;
  if (input.ReadTag() != kVersionTag || !input.ReadVarint64(&version)) return 0;
  return static_cast<int32_t>(version);
}

}  // namespace

Result<std::string> serialise(const Program& program) {
  proto::Program message;
  PELLUCID_TRY(to_message(program, message));
  if (message.ByteSizeLong() > kMessageBytesMax) {
    return error(Code::kOverBudget, "split the program: constants travel outside of it",
                 "the program is {} bytes, at most {} are accepted", message.ByteSizeLong(),
                 kMessageBytesMax);
  }
  std::string bytes;
  {
    io::StringOutputStream stream(&bytes);
    io::CodedOutputStream output(&stream);
    output.SetSerializationDeterministic(true);
    message.SerializeWithCachedSizes(&output);
  }
  return bytes;
}

Result<Program> parse_program(std::string_view bytes) {
  if (bytes.size() > kMessageBytesMax) {
    return error(Code::kOverBudget, "split the program: constants travel outside of it",
                 "the program is {} bytes, at most {} are accepted", bytes.size(),
                 kMessageBytesMax);
  }
  if (const int32_t version = version_of(bytes); version > kProgramVersion) {
    return error(Code::kUnsupported,
                 "update this installation, or record the program with an older one",
                 "the program has version {}, this build reads up to {}", version, kProgramVersion);
  }
  const google::protobuf::LogSilencer quiet;  // what is wrong goes into the Status
  proto::Program message;
  io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                             static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kRecursionMax);
  if (!message.ParseFromCodedStream(&input) || !input.ConsumedEntireMessage()) {
    return error(Code::kCorruptFile, "make it with serialise() or `t.program.save(file)`",
                 "not a program: {} bytes that are no Protocol Buffers message with UTF-8 strings",
                 bytes.size());
  }
  return from_message(message);
}

}  // namespace pellucid::wire
