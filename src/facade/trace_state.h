#pragma once
// The program that a Trace, its Values and its Prompts write together.
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/engine.h"
#include "facade/convert.h"
#include "facade/model_impl.h"
#include "pellucid/trace.h"
#include "wire/program.h"

namespace pellucid {

struct Saved::Impl {
  std::vector<std::string> names;  // one an output
  std::vector<Tensor> values;
  std::vector<bool> missing;
  int64_t steps = 0;
  bool ran = false;
};

struct TraceState : std::enable_shared_from_this<TraceState> {
  struct Steps {
    int32_t first = 0, end = 1;
    bool per_step = false;
  };
  struct Group {
    std::vector<std::vector<int64_t>> tokens;
    std::function<void(std::string_view)> on_text;
    std::vector<Generation> rows;
    int64_t steps_run = 0;
  };

  explicit TraceState(Model model_) : model(std::move(model_)) {}

  /// Adds a line at the current steps. Throws when the trace has run.
  int32_t add(wire::NodeKind kind, std::string name, std::vector<wire::Arg> args, int32_t group,
              const Where& where);
  Value value(int32_t node, int32_t output = 0);
  Value constant(const Tensor& tensor, const Where& where);

  /// Canonical name or alias to a site. Throws "not_found" with the nearest names.
  hook::Resolved resolve(std::string_view site, const Where& where) const;

  /// Throws for values of another trace.
  wire::Arg to_wire(const Arg& arg);
  wire::Arg to_wire(const Value& value);

  /// An operation with this many outputs; `name` is "aten::add.Tensor".
  Outputs op(std::string name, const std::vector<Arg>& args,
             const std::vector<std::pair<std::string, Arg>>& named, const Where& where);
  Value one(const char* name, const std::vector<Arg>& args, const Where& where);
  /// The trace of the first operand that has one.
  static std::shared_ptr<TraceState> of(const Arg& a, const Arg& b);

  Saved save(const std::vector<wire::Arg>& outputs, std::string name, const Where& where);
  int32_t open(std::vector<std::vector<int64_t>> rows, const GenerateOptions& options,
               const Where& where);
  void check_open(const char* what) const;
  void run();

  Model model;
  wire::Program program;
  std::vector<at::Tensor> constants;
  std::unordered_map<const Tensor::Impl*, int32_t> constant_of;
  std::vector<Tensor> constants_kept;  // keep the keys of constant_of alive
  std::vector<Group> groups;
  std::vector<Steps> steps;  // innermost last
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::vector<std::shared_ptr<Saved::Impl>> saves;
  std::unordered_set<std::string> save_names;
  std::vector<std::string> warnings;
  bool ran = false;
};

namespace facade {

/// "file.cpp:12".
std::string line_of(const Where& where);

/// Outputs of an operation by its schema: 1 or more, kList for a list of tensors, kUnknown when
/// there is no such operation (checking the program will say so, with the line).
inline constexpr int32_t kList = -1;
inline constexpr int32_t kUnknown = -2;
int32_t num_outputs(const std::string& operation);

}  // namespace facade
}  // namespace pellucid
