// Unrolls the program: one task a node, or one for each step of a body that was recorded once.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <limits>

#include "program/graph.h"
#include "program/shapes.h"

namespace pellucid::program {
namespace {

using wire::Node;
using wire::NodeKind;

constexpr int64_t kValuesOfNode =
    4;  // on average: operations that return lists count by their pieces

at::Tensor meta(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

at::Tensor meta_like(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(at::kMeta).requires_grad(false));
}

class Expander {
 public:
  explicit Expander(Graph& graph) : graph_(graph), nodes_(graph.program.nodes) {}

  Status run() {
    for (const at::Tensor& constant : graph_.options.constants) {
      add_value(meta_like(constant), false, -1);
    }
    graph_.task_of.resize(nodes_.size());
    clip_loops();
    for (size_t first = 0; first < nodes_.size();) {
      size_t end = first + 1;
      if (nodes_[first].per_step) {
        while (end < nodes_.size() && same_loop(nodes_[first], nodes_[end])) ++end;
        PELLUCID_TRY(expand_body(first, end));
      } else {
        PELLUCID_TRY(expand_node(first, nodes_[first].step_first, -1).at(nodes_[first].where));
      }
      first = end;
    }
    return ok_status();
  }

 private:
  static bool same_loop(const Node& a, const Node& b) {
    return a.per_step && b.per_step && a.step_first == b.step_first && a.step_end == b.step_end;
  }

  void refs(const wire::Arg& arg, std::vector<int>& out) const {
    if (const auto* ref = std::get_if<wire::ValueRef>(&arg.value)) out.push_back(ref->node);
    if (const auto* list = std::get_if<wire::Arg::List>(&arg.value)) {
      for (const wire::Arg& one : *list) refs(one, out);
    }
  }
  std::vector<int> refs(const Node& node) const {
    std::vector<int> out;
    for (const wire::Arg& arg : node.args) refs(arg, out);
    for (const auto& [key, arg] : node.kwargs) refs(arg, out);
    return out;
  }

  /// A body runs as often as its group has passes, and no longer than what it uses.
  void clip_loops() {
    graph_.step_end.resize(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      int64_t end = nodes_[i].step_end;
      if (nodes_[i].per_step) {
        if (nodes_[i].group >= 0) end = std::min(end, graph_.passes(nodes_[i].group));
        for (const int ref : refs(nodes_[i])) {
          if (nodes_[ref].per_step) end = std::min<int64_t>(end, graph_.step_end[ref]);
        }
      }
      graph_.step_end[i] = static_cast<int32_t>(end);
    }
  }

  /// The node whose site says that a step of the body happens, for nodes that use no value of it.
  int gate_of(size_t first, size_t end, const Node& node) const {
    int gate = -1;
    for (size_t i = first; i < end; ++i) {
      if (nodes_[i].kind != NodeKind::kRead && nodes_[i].kind != NodeKind::kWrite) continue;
      if (node.group >= 0 && nodes_[i].group != node.group) continue;
      if (gate >= 0 && nodes_[gate].group != nodes_[i].group) return -2;  // of which group?
      if (gate < 0) gate = static_cast<int>(i);
    }
    return gate;
  }

  Status expand_body(size_t first, size_t end) {
    std::vector<int> gates(end - first, -1);
    int64_t last = 0;
    for (size_t i = first; i < end; ++i) {
      const Node& node = nodes_[i];
      if (node.kind != NodeKind::kRead && node.kind != NodeKind::kWrite) {
        const std::vector<int> used = refs(node);
        const bool inside =
            std::any_of(used.begin(), used.end(), [&](int ref) { return nodes_[ref].per_step; });
        if (!inside) {
          const int gate = gate_of(first, end, node);
          if (gate < 0) {
            return error(Code::kInvalidArgument,
                         gate == -1 ? "read or write a site in the loop"
                                    : "use a value of the group whose steps are meant",
                         "a line in a loop over steps uses no value of any step")
                .at(node.where);
          }
          gates[i - first] = gate;
          graph_.step_end[i] = std::min(graph_.step_end[i], graph_.step_end[gate]);
        }
      }
      last = std::max<int64_t>(last, graph_.step_end[i]);
    }
    const int64_t steps = last - nodes_[first].step_first;
    PELLUCID_TRY(check_count(steps * static_cast<int64_t>(end - first)).at(nodes_[first].where));
    for (int step = nodes_[first].step_first; step < last; ++step) {
      for (size_t i = first; i < end; ++i) {
        if (step >= graph_.step_end[i]) continue;
        PELLUCID_TRY(expand_node(i, step, gates[i - first]).at(nodes_[i].where));
      }
    }
    return ok_status();
  }

  Status check_count(int64_t more) const {
    const int64_t count = static_cast<int64_t>(graph_.tasks.size()) + more;
    const int64_t values = static_cast<int64_t>(graph_.values.size()) / kValuesOfNode;
    if (std::max(count, values) <= graph_.options.limits.nodes) return ok_status();
    return error(Code::kOverBudget, "fewer steps or a smaller body, or raise the budget",
                 "{} nodes with loops unrolled, at most {} are allowed", count,
                 graph_.options.limits.nodes);
  }

  at::ScalarType dtype_of(hook::Site site) const {
    if (hook::site_info(site).integer) return at::kLong;
    const at::ScalarType dtype = graph_.options.dtype;
    return hook::is_wide(site) && dtype != at::kDouble ? at::kFloat : dtype;
  }

  int add_value(at::Tensor tensor, bool bounded, int task) {
    const int id = static_cast<int>(graph_.values.size());
    graph_.values.push_back({std::move(tensor), bounded, task, id, -1});
    return id;
  }

  /// The site of a group at a step, with the task that stands for its arrival.
  Result<int> site(const Node& node, hook::SiteKey key, int step) {
    const hook::Catalog& catalog = *graph_.options.catalog;
    const int order = key.order(static_cast<int>(catalog.sizes.num_layers));
    const auto [place, fresh] = graph_.site_at.try_emplace({node.group, step, order},
                                                           static_cast<int>(graph_.sites.size()));
    if (!fresh) return place->second;
    const auto& rows = graph_.program.groups[node.group].tokens;
    const int64_t prompt = graph_.prompt_length(node.group);
    const auto shape = hook::site_shape(catalog, key, static_cast<int64_t>(rows.size()),
                                        step == 0 ? prompt : 1, prompt + step);
    Task task;
    task.kind = TaskKind::kArrive;
    task.group = node.group;
    task.step = step;
    task.site = place->second;
    const int id = static_cast<int>(graph_.tasks.size());
    task.first_value = add_value(meta(shape, dtype_of(key.site)), false, id);
    task.num_values = 1;
    SiteUsed used;
    used.key = key;
    used.group = node.group;
    used.step = step;
    used.order = order;
    used.arrive = id;
    used.current = task.first_value;
    used.where = node.where;
    graph_.sites.push_back(std::move(used));
    graph_.tasks.push_back(std::move(task));
    return place->second;
  }

  Result<int> value(const Operand& operand, const Node& user, int step) const {
    if (operand.constant) return operand.node;
    const Node& made = nodes_[operand.node];
    if (made.per_step && !same_loop(made, user)) {
      return error(Code::kInvalidArgument,
                   "save it in the loop (saves stack along steps), or unroll the loop",
                   "a value of a loop over steps{} is used outside of the loop",
                   at_line(made.where));
    }
    const auto& tasks = graph_.task_of[operand.node];
    const auto found = tasks.find(made.per_step ? step : 0);
    if (found == tasks.end()) {
      return error(Code::kInvalidArgument, "", "a value{} is not there at step {}",
                   at_line(made.where), step);
    }
    const Task& task = graph_.tasks[found->second];
    if (operand.output >= task.num_values) {
      return error(Code::kInvalidArgument, "", "output {} of '{}'{}, which has {}", operand.output,
                   made.name, at_line(made.where), task.num_values);
    }
    return task.first_value + operand.output;
  }

  static Operand operand_of(const wire::Arg& arg) {
    if (const auto* constant = std::get_if<wire::ConstantRef>(&arg.value)) {
      return {true, constant->index, 0};
    }
    const auto& ref = std::get<wire::ValueRef>(arg.value);
    return {false, ref.node, ref.output};
  }

  const Value& at(int value) const { return graph_.values[value]; }

  Status expand_node(size_t index, int step, int gate) {
    const Node& node = nodes_[index];
    PELLUCID_TRY(check_count(1));
    Task task;
    task.kind = static_cast<TaskKind>(static_cast<int>(node.kind) + 1);
    task.node = static_cast<int>(index);
    task.group = node.group;
    task.step = step;
    task.per_step = node.per_step;
    if (gate >= 0) {
      PELLUCID_ASSIGN(const int gated, site(nodes_[gate], graph_.keys[gate], step));
      task.gate = graph_.sites[gated].arrive;
    }
    if (node.kind == NodeKind::kRead || node.kind == NodeKind::kWrite) {
      PELLUCID_ASSIGN(task.site, site(node, graph_.keys[index], step));
    }
    if (node.kind == NodeKind::kOp) {
      task.call = graph_.calls[index];
      for (const Operand& operand : task.call->operands) {
        PELLUCID_ASSIGN(task.operands.emplace_back(), value(operand, node, step));
      }
    } else {
      for (const wire::Arg& arg : node.args) {
        PELLUCID_ASSIGN(task.operands.emplace_back(), value(operand_of(arg), node, step));
      }
    }
    const int id = static_cast<int>(graph_.tasks.size());
    task.first_value = static_cast<int>(graph_.values.size());
    PELLUCID_TRY(outputs(task, node, id));
    task.num_values = static_cast<int>(graph_.values.size()) - task.first_value;
    graph_.task_of[index][node.per_step ? step : 0] = id;
    graph_.tasks.push_back(std::move(task));
    return ok_status();
  }

  Status outputs(Task& task, const Node& node, int id) {
    switch (node.kind) {
      case NodeKind::kOp:
        return operation(task, id);
      case NodeKind::kRead: {
        const int current = graph_.sites[task.site].current;
        const int read = add_value(at(current).meta, false, id);
        graph_.values[read].identity = at(current).identity;
        return ok_status();
      }
      case NodeKind::kWrite:
        return write(task, node, id);
      case NodeKind::kSave:
        return ok_status();
      case NodeKind::kPart:
        return part(task, node, id);
      case NodeKind::kWeight: {
        if (!graph_.options.weight) {
          return error(Code::kUnsupported, "", "no weights here: '{}'", node.name);
        }
        PELLUCID_ASSIGN(const at::Tensor weight, graph_.options.weight(node.name));
        add_value(meta_like(weight), false, id);
        return ok_status();
      }
      case NodeKind::kCall:
        return call(node, task.step, id);
    }
    return ok_status();
  }

  Status operation(Task& task, int id) {
    std::vector<at::Tensor> metas;
    bool bounded = false;
    for (const int operand : task.operands) {
      metas.push_back(at(operand).meta);
      bounded |= at(operand).bounded;
    }
    // Steps of a body mostly repeat the step before: same operands, same answer.
    Remembered& last = remembered_[task.node];
    if (!same(last, metas)) {
      PELLUCID_ASSIGN(last.inferred, infer(*task.call, metas));
      last.operands = metas;
      last.valid = true;
    }
    const Inferred& inferred = last.inferred;
    const Operation& op = *task.call->operation;
    for (const int argument : op.written) {
      for (const int operand : task.call->operands_of(argument)) {
        task.written.push_back(task.operands[operand]);
      }
      if (task.call->operands_of(argument).empty()) {
        return error(Code::kInvalidArgument, "", "{} changes a number in place", op.name);
      }
    }
    for (const at::Tensor& output : inferred.outputs) {
      add_value(output, bounded || inferred.bounded, id);
    }
    if (!task.written.empty() && inferred.outputs.size() == 1) {
      Value& output = graph_.values.back();
      output.identity = at(task.written[0]).identity;
      output.meta = at(task.written[0]).meta;
      output.bounded = at(task.written[0]).bounded;
    }
    task.output_bytes = inferred.output_bytes;
    task.scratch_bytes = inferred.scratch_bytes;
    graph_.floating_point_operations += inferred.floating_point_operations;
    return ok_status();
  }

  struct Remembered {
    bool valid = false;
    std::vector<at::Tensor> operands;
    Inferred inferred;
  };

  static bool same(const Remembered& last, const std::vector<at::Tensor>& metas) {
    if (!last.valid || last.operands.size() != metas.size()) return false;
    for (size_t i = 0; i < metas.size(); ++i) {
      const at::Tensor& a = last.operands[i];
      const at::Tensor& b = metas[i];
      if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() ||
          a.strides() != b.strides()) {
        return false;
      }
    }
    return true;
  }

  Status write(Task& task, const Node& node, int id) {
    SiteUsed& site = graph_.sites[task.site];
    const Value& written = at(task.operands[0]);
    const at::Tensor have = at(site.current).meta;
    const std::string name = hook::site_name(site.key);
    if (written.bounded) {
      return error(Code::kShapeMismatch, "use where instead of a boolean index",
                   "write to {}: the value's length is not known before it runs", name);
    }
    if (written.meta.sizes() != have.sizes()) {
      return error(Code::kShapeMismatch, "shapes must be equal: nothing is broadcast into a site",
                   "write to {}: the site is {}, the value {}", name, describe(have.sizes()),
                   describe(written.meta.sizes()));
    }
    const bool integer = at::isIntegralType(have.scalar_type(), false);
    const at::ScalarType type = written.meta.scalar_type();
    if (integer ? !at::isIntegralType(type, false) : !at::isFloatingType(type)) {
      return error(Code::kShapeMismatch, "cast it first",
                   "write to {}: the site is {}, the value {}", name, describe(have),
                   describe(written.meta));
    }
    task.in_place_write = written.identity == at(site.current).identity;
    const int identity = written.identity;
    const int version = add_value(have, false, id);
    if (task.in_place_write) graph_.values[version].identity = identity;
    site.current = version;
    return ok_status();
  }

  Status part(Task& task, const Node& node, int id) {
    const at::Tensor& x = at(task.operands[0]).meta;
    const hook::SiteSizes& sizes = graph_.options.catalog->sizes;
    if (x.dim() < 1 || x.size(-1) != sizes.d_model || !at::isFloatingType(x.scalar_type())) {
      return error(Code::kShapeMismatch, "", "{} takes floats [..., {}], not {}", node.name,
                   sizes.d_model, describe(x));
    }
    std::vector<int64_t> shape = x.sizes().vec();
    if (node.name == "unembed") {
      shape.back() = sizes.vocab;
      graph_.floating_point_operations += 2.0 * x.numel() * sizes.vocab;
    }
    add_value(meta(shape, graph_.options.dtype), at(task.operands[0]).bounded, id);
    task.output_bytes = storage_bytes(graph_.values.back().meta);
    return ok_status();
  }

  /// kwargs `shape` and `dtype`, or `like`, say what a callback returns; without them, nothing.
  Status call(const Node& node, int step, int id) {
    std::optional<std::vector<int64_t>> shape;
    at::ScalarType dtype = graph_.options.dtype;
    for (const auto& [key, arg] : node.kwargs) {
      if (key == "like" && (std::holds_alternative<wire::ValueRef>(arg.value) ||
                            std::holds_alternative<wire::ConstantRef>(arg.value))) {
        PELLUCID_ASSIGN(const int like, value(operand_of(arg), node, step));
        shape = at(like).meta.sizes().vec();
        dtype = at(like).meta.scalar_type();
      } else if (const auto* list = std::get_if<wire::Arg::List>(&arg.value);
                 key == "shape" && list) {
        shape.emplace();
        for (const wire::Arg& one : *list) {
          const auto* size = std::get_if<int64_t>(&one.value);
          if (size == nullptr || *size < 0) {
            return error(Code::kInvalidArgument, "sizes from 0",
                         "the shape of a callback's result");
          }
          shape->push_back(*size);
        }
      } else if (const auto* named = std::get_if<wire::DtypeArg>(&arg.value);
                 key == "dtype" && named) {
        PELLUCID_ASSIGN(dtype, dtype_by_name(named->name));
      } else {
        return error(Code::kInvalidArgument, "like, shape or dtype",
                     "a callback has no argument '{}'", key);
      }
    }
    if (shape) add_value(meta(*shape, dtype), false, id);
    return ok_status();
  }

  Graph& graph_;
  const std::vector<Node>& nodes_;
  std::unordered_map<int, Remembered> remembered_;
};

}  // namespace

Status expand(Graph& graph) {
  const CostScope costs;
  return Expander(graph).run();
}

}  // namespace pellucid::program
