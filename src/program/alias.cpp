// Which values may share memory. Decided from the schemas and with doubt on the safe side: reshape
// and its like count as views. A dtype that changes means a copy.
#include <ATen/core/function_schema.h>

#include <numeric>

#include "program/graph.h"

namespace pellucid::program {
namespace {

class Sets {
 public:
  explicit Sets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  int find(int v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  void join(int a, int b) { parent_[find(a)] = find(b); }

 private:
  std::vector<int> parent_;
};

/// Schema return -> its first output and their number. A list takes what the others leave.
std::pair<int, int> outputs_of(const Task& task, int returned, int num_returns) {
  if (num_returns == 1) return {0, task.num_values};
  return {returned, 1};
}

void join_operation(const Graph& graph, const Task& task, Sets& sets) {
  const Operation& operation = *task.call->operation;
  const int returns = static_cast<int>(operation.schema->returns().size());
  for (const auto& [returned, argument] : operation.aliases) {
    // einsum of one operand permutes it; of several it never returns one of them.
    const std::vector<int> operands = task.call->operands_of(argument);
    const bool list = task.call->slots[argument].tensors.size() > 1;
    const auto [first, count] = outputs_of(task, returned, returns);
    for (int i = 0; i < count; ++i) {
      const int output = task.first_value + first + i;
      for (size_t o = 0; o < operands.size(); ++o) {
        // Lists in, lists out (meshgrid, broadcast_tensors): one for one.
        if (list && count > 1 && static_cast<int>(o) != i) continue;
        if (list && count == 1 && operation.name == "aten::einsum") continue;
        const int operand = task.operands[operands[o]];
        const bool cast =
            graph.values[output].meta.scalar_type() != graph.values[operand].meta.scalar_type();
        if (!cast) sets.join(output, operand);
      }
    }
  }
}

/// The writes into constants and weights are refused here, with the line.
Status check_written(const Graph& graph, const Task& task, const AliasSet& set) {
  if (!set.constant && !set.weight) return ok_status();
  return error(Code::kInvalidArgument, "clone() it first and change the copy",
               "{} changes {} in place: {} never written to", graph.node_of(task).name,
               set.constant ? "a constant" : "a weight",
               set.constant ? "constants are" : "weights are")
      .at(graph.where(task));
}

}  // namespace

Status find_aliases(Graph& graph) {
  Sets sets(graph.values.size());
  for (size_t v = 0; v < graph.values.size(); ++v) {
    sets.join(static_cast<int>(v), graph.values[v].identity);
  }
  for (const Task& task : graph.tasks) {
    if (task.kind == TaskKind::kOp) join_operation(graph, task, sets);
  }
  std::vector<int> index(graph.values.size(), -1);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    int& set = index[sets.find(static_cast<int>(v))];
    if (set < 0) {
      set = static_cast<int>(graph.alias_sets.size());
      graph.alias_sets.emplace_back();
    }
    graph.values[v].alias_set = set;
    if (graph.values[v].task < 0) graph.alias_sets[set].constant = true;
  }
  for (size_t t = 0; t < graph.tasks.size(); ++t) {
    const Task& task = graph.tasks[t];
    const auto set_of = [&](int value) -> AliasSet& {
      return graph.alias_sets[graph.values[value].alias_set];
    };
    if (task.kind == TaskKind::kWeight) set_of(task.first_value).weight = true;
    const bool version =
        task.kind == TaskKind::kArrive || (task.kind == TaskKind::kWrite && !task.in_place_write);
    if (version) set_of(task.first_value).sites.push_back(task.site);
    for (const int value : task.written) set_of(value).writers.push_back(static_cast<int>(t));
  }
  for (const AliasSet& set : graph.alias_sets) {
    if (!set.writers.empty()) PELLUCID_TRY(check_written(graph, graph.tasks[set.writers[0]], set));
  }
  return ok_status();
}

}  // namespace pellucid::program
