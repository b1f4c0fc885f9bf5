#pragma once
// Checks a program completely before anything runs and decides when each node runs.
//
// Time is (wave, step, site): waves are whole runs of groups, one after another; within a wave all
// its groups share every forward pass. A node runs at the latest of its operands' times; a write
// must not be later than its site. Groups whose values flow against the order of the forward pass
// move to a later wave; only a cycle is refused.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hook/names.h"
#include "wire/program.h"

namespace pellucid::program {

/// What a program may assume of the place where it runs.
struct Limits {
  int64_t saved_bytes = int64_t{8} << 30;
  int64_t temporary_bytes = int64_t{8} << 30;
  double floating_point_operations = 1e18;
  double seconds = 1e9;
  int64_t nodes = 1'000'000;
};

struct PlanOptions {
  const hook::Catalog* catalog = nullptr;  // outlives the plan
  at::ScalarType dtype = at::kFloat;       // of floating sites
  std::vector<at::Tensor> constants;       // one for each Program::constants
  /// Shape and dtype of a weight by canonical name, without loading anything (kWeight nodes).
  std::function<Result<at::Tensor>(const std::string&)> weight;
  int64_t context_length = 0;
  /// Groups that would make the prompts of a wave longer than this go to a later one; 0: no limit.
  /// A group alone may exceed it.
  int64_t tokens_per_wave_max = 0;
  Limits limits;
};

/// A site that a group uses in a pass.
struct SiteUse {
  hook::SiteKey key;
  bool written = false;  // by a write, or by an in-place operation on (a view of) what was read
};

/// Which logits of a group the program reads or edits at a step. Neither `all` nor positions: none.
/// When `all` is false, Run::visit of `logits` wants and returns [batch, positions.size(), vocab]:
/// these positions in this order, and nothing else (what sampling needs besides is the engine's).
struct LogitsNeed {
  bool all = false;
  std::vector<int64_t> positions;  // sorted, non-negative, when !all
};

class Plan {
 public:
  /// Everything that can be known before running is checked here: operations and overloads on the
  /// allow-list, arity and types, shapes and dtypes (inferred with meta tensors or our own shape
  /// functions, so sizes are known before anything is allocated), sites (nearest names), orders (an
  /// edit upstream of a site already read in that row and step: both lines named), cycles between
  /// groups, steps that cannot happen, budgets.
  static Result<std::shared_ptr<const Plan>> make(wire::Program program, PlanOptions options);
  virtual ~Plan() = default;

  virtual const wire::Program& program() const = 0;
  virtual int num_waves() const = 0;
  virtual int wave_of(int group) const = 0;
  /// Sites that `group` uses at `step` (steps of per_step ranges included).
  virtual std::vector<SiteUse> uses(int group, int step) const = 0;
  /// Last step at which any node of the group reads, writes or computes; -1: none.
  virtual int last_step(int group) const = 0;
  /// Only step 0 is ever narrowed: later passes have one position.
  virtual LogitsNeed logits_need(int group, int step) const = 0;
  /// First layer at step 0 whose computation this group's writes change: it may share the pass of
  /// another group with the same tokens below that layer. Number of layers: writes nothing in
  /// blocks; 0: writes before the blocks or in block 0.
  virtual int first_written_layer(int group) const = 0;
  /// Warnings for the user (a computed line whose value nobody uses), with lines.
  virtual const std::vector<std::string>& warnings() const = 0;
  virtual int64_t saved_bytes() const = 0;  // upper bound
};

}  // namespace pellucid::program
