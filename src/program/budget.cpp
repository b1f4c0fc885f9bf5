#include <algorithm>
#include <set>

#include "program/graph.h"
#include "program/shapes.h"

namespace pellucid::program {
namespace {

Status over(const std::string& what, double have, double allowed) {
  return error(Code::kOverBudget, "ask for less, or raise the budget",
               "{}: {:.6g}, at most {:.6g} are allowed", what, have, allowed);
}

int64_t bytes(const at::Tensor& meta) {
  return meta.numel() * static_cast<int64_t>(meta.element_size());
}

Status check_stacked(const Graph& graph) {
  for (size_t node = 0; node < graph.task_of.size(); ++node) {
    const at::Tensor* first = nullptr;
    int first_step = 0;
    for (const auto& [step, t] : graph.task_of[node]) {
      const Task& task = graph.tasks[t];
      if (task.kind != TaskKind::kSave || !task.per_step) continue;
      const Value& saved = graph.values[task.operands[0]];
      if (first == nullptr) {
        first = &saved.meta;
        first_step = step;
      }
      if (first->sizes() == saved.meta.sizes() && !saved.bounded) continue;
      return error(Code::kShapeMismatch,
                   "unroll the loop (for k in t.steps[a:b]) to save one tensor a step",
                   "'{}' is {} at step {} and {} at step {}: they cannot be stacked",
                   graph.node_of(task).name, describe(first->sizes()), first_step,
                   describe(saved.meta.sizes()), step)
          .at(graph.where(task));
    }
  }
  return ok_status();
}

}  // namespace

Status check_budget(Graph& graph) {
  PELLUCID_TRY(check_stacked(graph));
  const Limits& limits = graph.options.limits;
  double saved = 0;
  for (const Task& task : graph.tasks) {
    // A site's own copy, and what operations make.
    double fresh = static_cast<double>(task.output_bytes) + static_cast<double>(task.scratch_bytes);
    if (fresh > static_cast<double>(limits.temporary_bytes)) {
      return over(fmt::format("{}: bytes of temporary memory", graph.node_of(task).name), fresh,
                  static_cast<double>(limits.temporary_bytes))
          .at(graph.where(task));
    }
    if (task.kind != TaskKind::kSave) continue;
    saved += static_cast<double>(bytes(graph.values[task.operands[0]].meta));
    if (saved > static_cast<double>(limits.saved_bytes)) {
      return over("bytes of saved values", saved, static_cast<double>(limits.saved_bytes))
          .at(graph.where(task));
    }
  }
  graph.saved_bytes = static_cast<int64_t>(saved);
  if (graph.floating_point_operations > limits.floating_point_operations) {
    return over("floating-point operations", graph.floating_point_operations,
                limits.floating_point_operations);
  }
  return ok_status();
}

void find_unused(Graph& graph) {
  std::vector<bool> useful(graph.tasks.size(), false);
  std::vector<bool> consumed(graph.tasks.size(), false);
  for (const SiteUsed& site : graph.sites) {
    for (const int edit : site.edits) useful[edit] = true;
  }
  for (size_t t = graph.tasks.size(); t-- > 0;) {
    const Task& task = graph.tasks[t];
    if (task.kind == TaskKind::kSave || task.kind == TaskKind::kWrite ||
        task.kind == TaskKind::kCall) {
      useful[t] = true;
    }
    for (const Edge& edge : task.after) {
      if (useful[t] && !edge.order_only) useful[edge.task] = true;
      consumed[edge.task] = true;
    }
    // A loop's last change of a value that is used afterwards: an order, but of use.
    for (const Edge& edge : task.after) {
      if (useful[t] && !graph.tasks[edge.task].written.empty()) useful[edge.task] = true;
    }
  }
  std::set<int> warned;
  for (size_t t = 0; t < graph.tasks.size(); ++t) {
    const Task& task = graph.tasks[t];
    const bool computed = task.kind == TaskKind::kOp || task.kind == TaskKind::kPart;
    if (!computed || useful[t] || consumed[t] || !warned.insert(task.node).second) continue;
    graph.warnings.push_back(fmt::format("{}the result of {} is never saved or written",
                                         graph.where(task).empty() ? "" : graph.where(task) + ": ",
                                         graph.node_of(task).name));
  }
}

}  // namespace pellucid::program
