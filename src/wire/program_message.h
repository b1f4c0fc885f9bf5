#pragma once
// Between plain structs and the Protocol Buffers message; for this layer's sources only.
#include "base/status.h"
#include "proto/program.pb.h"
#include "wire/program.h"

namespace pellucid::wire {

/// kUnsupported for callbacks.
Status to_message(const Program& program, proto::Program& message);
/// Checks form: versions, enums, references, counts.
Result<Program> from_message(const proto::Program& message);

/// Bounds of what is accepted before anything is allocated for it.
inline constexpr size_t kMessageBytesMax = size_t{256} << 20;
inline constexpr int kDepthMax = 8;  // of nested lists; torch needs 2
inline constexpr int kNodesMax = 4'000'000;
inline constexpr int kNameMax = 1024;       // bytes of names, sites, hashes, dtypes, lines
inline constexpr int kStopMax = 64 << 10;   // bytes of a stop string
inline constexpr int kArgsMax = 1'000'000;  // of one node or list
inline constexpr int kDimsMax = 64;

}  // namespace pellucid::wire
