#pragma once
// The inside of a plan: the program with its loops unrolled, every value's size known, and for each
// task what it waits for. Built by the functions below in their order (plan.cpp); read by run.cpp.
#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "program/bind.h"
#include "program/plan.h"
#include "wire/program.h"

namespace pellucid::program {

/// One tensor of the program: a constant, the output of a task, or a site's tensor.
struct Value {
  at::Tensor meta;       // shape and dtype
  bool bounded = false;  // lengths may turn out smaller
  int32_t task = -1;     // who makes it; -1: a constant
  /// The value whose tensor this is: reads and in-place operations return a tensor that is there.
  int32_t identity = -1;
  int32_t alias_set = -1;
};

enum class TaskKind : uint8_t { kArrive, kOp, kRead, kWrite, kSave, kPart, kWeight, kCall };

struct Edge {
  int32_t task = -1;
  bool order_only = false;  // wait, but run also when the other one never runs
};

/// A node at one step. Tasks are in the order of lines, loops unrolled step by step.
struct Task {
  TaskKind kind = TaskKind::kOp;
  int32_t node = -1;  // -1: kArrive, the moment when a site's value is there
  int32_t group = -1;
  int32_t step = 0;
  bool per_step = false;
  int32_t site = -1;                 // index into Graph::sites: kArrive, kRead, kWrite
  int32_t gate = -1;                 // a kArrive that says that the step happens
  std::shared_ptr<const Call> call;  // kOp
  std::vector<int32_t> operands;     // values; for kOp as in Call::operands
  int32_t first_value = -1;
  int32_t num_values = 0;
  std::vector<int32_t> written;  // values changed in place
  std::vector<Edge> after;
  int64_t output_bytes = 0;
  int64_t scratch_bytes = 0;
  bool in_place_write = false;  // kWrite of the very tensor that the site has: nothing to do
  bool copy = false;            // kSave: somebody else owns or later changes the tensor
};

/// A site of one group at one step.
struct SiteUsed {
  hook::SiteKey key;
  int32_t group = 0;
  int32_t step = 0;
  int32_t order = 0;
  int32_t arrive = -1;   // its task; output 0 is the site's own tensor
  int32_t current = -1;  // value: the site's tensor after the last line
  bool written = false;
  bool clone = false;  // the program changes what it reads: work on a copy
  bool keep = false;   // something is used after the pass has moved on: do not pin its buffers
  std::vector<int32_t> edits;  // tasks that must have run when the pass goes on
  std::string where;           // first line that uses it
};

struct AliasSet {
  bool constant = false;
  bool weight = false;
  std::vector<int32_t> sites;    // indices: the set holds (a version of) the site's tensor
  std::vector<int32_t> writers;  // tasks that change it, in order
};

struct Graph {
  wire::Program program;
  PlanOptions options;
  std::vector<std::shared_ptr<const Call>> calls;  // by node; null unless kOp
  std::vector<hook::SiteKey> keys;                 // by node: of reads and writes
  std::vector<int32_t> step_end;                   // by node, clipped to the passes that may happen

  std::vector<Value> values;  // constants first
  std::vector<Task> tasks;
  std::vector<std::map<int32_t, int32_t>> task_of;  // by node: step -> task (0 unless per_step)
  std::vector<SiteUsed> sites;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> site_at;  // group, step, order
  std::vector<AliasSet> alias_sets;

  std::vector<int32_t> waves;  // by group
  int32_t num_waves = 1;
  std::vector<LogitsNeed> logits;  // by site index; meaningful for logits
  std::vector<std::string> warnings;
  int64_t saved_bytes = 0;
  double floating_point_operations = 0;

  const wire::Node& node_of(const Task& task) const { return program.nodes[task.node]; }
  std::string where(const Task& task) const { return task.node < 0 ? "" : node_of(task).where; }
  int64_t prompt_length(int group) const;
  int64_t passes(int group) const;
};

/// "line x: " or nothing.
std::string at_line(const std::string& where);

/// Names, references, groups, steps, arguments: everything but sizes. check.cpp
Status check_form(Graph& graph);
/// Unrolls loops and infers every value. expand.cpp
Status expand(Graph& graph);
/// Which values may share memory, and who changes it. alias.cpp
Status find_aliases(Graph& graph);
/// What each task waits for; refuses edits upstream of what was read. order.cpp
Status find_order(Graph& graph);
/// Which positions of the logits are needed. narrow.cpp
Status narrow_logits(Graph& graph);
/// Waves; refuses values that flow against the order of the forward pass. schedule.cpp
Status schedule(Graph& graph);
/// Budgets and warnings. budget.cpp
Status check_budget(Graph& graph);
void find_unused(Graph& graph);

}  // namespace pellucid::program
