#pragma once
// A program as it travels: plain structs, no torch. The same structs are what the builder makes,
// what is stored, checked and run, here and far away. proto/program.proto is their written form.
//
// A program is a list of nodes in the order of the user's lines, and the groups of rows on which
// they work. Node i may use outputs of nodes before it only.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace pellucid::wire {

inline constexpr int kProgramVersion = 1;

/// Output `output` of node `node`.
struct ValueRef {
  int32_t node = 0;
  int32_t output = 0;
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
};
/// Program::constants[index].
struct ConstantRef {
  int32_t index = 0;
  friend bool operator==(const ConstantRef&, const ConstantRef&) = default;
};
/// "float32", "int64", ... as in tensor/dtype.h.
struct DtypeArg {
  std::string name;
  friend bool operator==(const DtypeArg&, const DtypeArg&) = default;
};

/// An argument of an operation. A number where the schema wants a tensor is a wrapped number, as in
/// PyTorch: it never widens the other operand's dtype.
struct Arg {
  using List = std::vector<Arg>;
  std::variant<std::monostate, bool, int64_t, double, std::string, ValueRef, ConstantRef, DtypeArg,
               List>
      value;
  friend bool operator==(const Arg&, const Arg&) = default;
};

enum class NodeKind : uint8_t {
  kOp,      // name: schema name and overload, "aten::add.Tensor"
  kRead,    // name: canonical site; output 0 is the group's value [batch, seq, ...]
  kWrite,   // name: canonical site; args[0] replaces it
  kSave,    // name: of the result; args[0]: the value as it is at this line
  kPart,    // name: "unembed" or "ln_final"; args[0]: any [..., d_model]
  kWeight,  // name: canonical weight, as Model::weight has it
  kCall,    // name: key of a local callback; args: values. Never stored, never sent
};

struct Node {
  NodeKind kind = NodeKind::kOp;
  std::string name;
  std::vector<Arg> args;                            // positional, in the schema's order
  std::vector<std::pair<std::string, Arg>> kwargs;  // by the schema's names
  int32_t group = -1;                               // reads and writes: whose rows. -1: outside

  /// Steps of generation at which the node runs. Step 0 is the prompt's pass. Unrolled lines have
  /// [k, k + 1); a body recorded once has a range and per_step = true: it runs at every step of the
  /// range that happens (step_end may lie beyond the last), and its saves stack along a new first
  /// dimension.
  int32_t step_first = 0;
  int32_t step_end = 1;
  bool per_step = false;

  bool grad_enabled = true;
  std::string where;  // the user's line, "file.py:12", or ""

  friend bool operator==(const Node&, const Node&) = default;
};

struct Sampling {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // 0: off
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  uint64_t seed = 0;  // of the group; row r draws from its own stream (seed, r)
  friend bool operator==(const Sampling&, const Sampling&) = default;
};

/// Rows of equal length that share nodes.
struct Group {
  std::vector<std::vector<int64_t>>
      tokens;  // one list a row; empty in a stored program: given later
  /// New tokens = passes. 0: one pass over the prompt and no sampling.
  int64_t max_new_tokens = 0;
  Sampling sampling;
  std::vector<std::string> stop;  // strings that end a row
  bool stop_at_eos = true;
  std::string where;
  friend bool operator==(const Group&, const Group&) = default;
};

/// A constant tensor that lives outside the message. `hash` is the sha256 of dtype, shape and
/// bytes, or "" while the program is local and the constant is used by reference.
struct Constant {
  std::string hash;
  std::string dtype;
  std::vector<int64_t> shape;
  friend bool operator==(const Constant&, const Constant&) = default;
};

/// 0: the engine's own limit.
struct Budget {
  int64_t saved_bytes = 0;
  int64_t temporary_bytes = 0;
  double floating_point_operations = 0;
  double seconds = 0;
  int64_t nodes = 0;
  friend bool operator==(const Budget&, const Budget&) = default;
};

struct Program {
  int32_t version = kProgramVersion;
  std::vector<Group> groups;
  std::vector<Node> nodes;
  std::vector<Constant> constants;
  Budget budget;
  friend bool operator==(const Program&, const Program&) = default;
};

/// Protocol Buffers, binary. Refuses programs with callbacks (kUnsupported: local only).
Result<std::string> serialise(const Program& program);
/// Checks form (version, enums, references to earlier nodes only, sizes, depth), not meaning: that
/// is program/check.h. Errors: kCorruptFile, kUnsupported (a newer version: both numbers).
Result<Program> parse_program(std::string_view bytes);
/// The JSON form of the same message, for people and `pellucid trace`.
Result<std::string> to_json(const Program& program);
Result<Program> program_from_json(std::string_view json);

}  // namespace pellucid::wire
