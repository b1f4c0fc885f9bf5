#include <algorithm>

#include "program/graph.h"

namespace pellucid::program {
namespace {

using wire::Arg;
using wire::Node;
using wire::NodeKind;

Status check_refs(const Graph& graph, const Arg& arg, int index) {
  if (const auto* ref = std::get_if<wire::ValueRef>(&arg.value)) {
    if (ref->node < 0 || ref->node >= index || ref->output < 0) {
      return error(Code::kInvalidArgument, "nodes may use nodes before them only",
                   "node {} uses output {} of node {}", index, ref->output, ref->node);
    }
  } else if (const auto* ref = std::get_if<wire::ConstantRef>(&arg.value)) {
    if (ref->index < 0 || ref->index >= static_cast<int>(graph.options.constants.size())) {
      return error(Code::kInvalidArgument, "give one tensor for each constant",
                   "node {} uses constant {} of {}", index, ref->index,
                   graph.options.constants.size());
    }
  } else if (const auto* list = std::get_if<Arg::List>(&arg.value)) {
    for (const Arg& one : *list) PELLUCID_TRY(check_refs(graph, one, index));
  }
  return ok_status();
}

bool is_value(const Arg& arg) {
  return std::holds_alternative<wire::ValueRef>(arg.value) ||
         std::holds_alternative<wire::ConstantRef>(arg.value);
}

Status wants_values(const Node& node, size_t count) {
  const bool values = std::all_of(node.args.begin(), node.args.end(), is_value);
  if (node.args.size() == count && values) return ok_status();
  return error(Code::kInvalidArgument, "", "'{}' takes {} value{}", node.name, count,
               count == 1 ? "" : "s");
}

Status check_group(const Graph& graph, const wire::Group& group) {
  if (group.tokens.empty() || group.tokens[0].empty()) {
    return error(Code::kInvalidArgument, "a group needs at least one row of one token",
                 "a prompt without tokens");
  }
  const int64_t vocab = graph.options.catalog->sizes.vocab;
  const size_t length = group.tokens[0].size();
  for (size_t row = 0; row < group.tokens.size(); ++row) {
    if (group.tokens[row].size() != length) {
      return error(Code::kInvalidArgument, "use one prompt each, or map",
                   "rows of one group have lengths {} and {}", length, group.tokens[row].size());
    }
    for (const int64_t id : group.tokens[row]) {
      if (id >= 0 && id < vocab) continue;
      return error(Code::kInvalidArgument, fmt::format("ids are 0 to {}", vocab - 1),
                   "token id {} in row {}", id, row);
    }
  }
  if (group.max_new_tokens < 0) {
    return error(Code::kInvalidArgument, "0 or more", "max_new_tokens is {}", group.max_new_tokens);
  }
  // Everything is checked against the longest that the group may become, without overflow.
  const int64_t context = graph.options.context_length;
  const int64_t passes = std::max<int64_t>(1, group.max_new_tokens);
  if (context > 0 && (static_cast<int64_t>(length) > context ||
                      passes - 1 > context - static_cast<int64_t>(length))) {
    return error(Code::kInvalidArgument, "shorten the prompt or ask for fewer tokens",
                 "{} tokens of prompt and {} new ones: the model's context holds {}", length,
                 group.max_new_tokens, context);
  }
  return ok_status();
}

Status check_steps(const Graph& graph, const Node& node) {
  if (node.step_first < 0 || node.step_end <= node.step_first) {
    return error(Code::kInvalidArgument, "steps are [first, end), from 0", "steps [{}, {})",
                 node.step_first, node.step_end);
  }
  if (!node.per_step && node.step_end != node.step_first + 1) {
    return error(Code::kInvalidArgument, "set per_step for a body that runs at many steps",
                 "steps [{}, {}) of a node that runs once", node.step_first, node.step_end);
  }
  if (node.group < 0) return ok_status();
  const int64_t passes = graph.passes(node.group);
  if (node.step_first >= passes) {
    return error(Code::kInvalidArgument,
                 "steps are 0 to max_new_tokens - 1; the last token never passes through the model",
                 "step {} never happens: the group has {} new tokens and {} pass{}",
                 node.step_first, graph.program.groups[node.group].max_new_tokens, passes,
                 passes == 1 ? "" : "es");
  }
  return ok_status();
}

Status check_site(Graph& graph, const Node& node, int index) {
  if (node.group < 0) {
    return error(Code::kInvalidArgument, "read and write inside of a prompt",
                 "site {} outside of any group", node.name);
  }
  PELLUCID_ASSIGN(const hook::Resolved found,
                  hook::resolve_site(*graph.options.catalog, node.name));
  if (found.flatten_heads) {
    return error(Code::kInvalidArgument,
                 fmt::format("read {} and flatten its heads", hook::site_name(found.key)),
                 "'{}' shows heads as one dimension", node.name);
  }
  graph.keys[index] = found.key;
  return wants_values(node, node.kind == NodeKind::kWrite ? 1 : 0);
}

Status check_node(Graph& graph, const Node& node, int index) {
  for (const Arg& arg : node.args) PELLUCID_TRY(check_refs(graph, arg, index));
  for (const auto& [key, arg] : node.kwargs) PELLUCID_TRY(check_refs(graph, arg, index));
  if (node.group < -1 || node.group >= static_cast<int>(graph.program.groups.size())) {
    return error(Code::kInvalidArgument, "", "node {} is of group {}, there are {}", index,
                 node.group, graph.program.groups.size());
  }
  PELLUCID_TRY(check_steps(graph, node));
  switch (node.kind) {
    case NodeKind::kOp: {
      PELLUCID_ASSIGN(Call call, bind(node));
      graph.program.nodes[index].name = call.operation->name;
      graph.calls[index] = std::make_shared<const Call>(std::move(call));
      return ok_status();
    }
    case NodeKind::kRead:
    case NodeKind::kWrite:
      return check_site(graph, node, index);
    case NodeKind::kSave:
      if (node.name.empty()) return error(Code::kInvalidArgument, "", "a save without a name");
      return wants_values(node, 1);
    case NodeKind::kPart:
      if (node.name != "unembed" && node.name != "ln_final") {
        return error(Code::kNotFound, "unembed or ln_final", "no part '{}' of a model", node.name);
      }
      return wants_values(node, 1);
    case NodeKind::kWeight:
      return wants_values(node, 0);
    case NodeKind::kCall:
      return wants_values(node, node.args.size());
  }
  return error(Code::kInvalidArgument, "", "node {} is of an unknown kind", index);
}

Status check_names(const Graph& graph) {
  std::unordered_map<std::string, const Node*> seen;
  for (const Node& node : graph.program.nodes) {
    if (node.kind != NodeKind::kSave) continue;
    const auto [place, fresh] = seen.emplace(node.name, &node);
    if (!fresh) {
      return error(Code::kInvalidArgument, "give each saved value its own name",
                   "two values are saved as '{}'{}", node.name, at_line(place->second->where))
          .at(node.where);
    }
  }
  return ok_status();
}

}  // namespace

int64_t Graph::prompt_length(int group) const {
  return static_cast<int64_t>(program.groups[group].tokens[0].size());
}

int64_t Graph::passes(int group) const {
  return std::max<int64_t>(1, program.groups[group].max_new_tokens);
}

std::string at_line(const std::string& where) {
  return where.empty() ? std::string() : fmt::format(" ({})", where);
}

Status check_form(Graph& graph) {
  const wire::Program& program = graph.program;
  if (program.version != wire::kProgramVersion) {
    return error(Code::kUnsupported, "record it again, or update",
                 "the program has version {}, this build knows {}", program.version,
                 wire::kProgramVersion);
  }
  if (program.constants.size() != graph.options.constants.size()) {
    return error(Code::kInvalidArgument, "give one tensor for each constant",
                 "the program has {} constants, {} were given", program.constants.size(),
                 graph.options.constants.size());
  }
  const int64_t limit = graph.options.limits.nodes;
  if (static_cast<int64_t>(program.nodes.size()) > limit) {
    return error(Code::kOverBudget, "split the program, or raise the budget",
                 "{} nodes, at most {} are allowed", program.nodes.size(), limit);
  }
  for (const wire::Group& group : program.groups) {
    PELLUCID_TRY(check_group(graph, group).at(group.where));
  }
  graph.calls.resize(program.nodes.size());
  graph.keys.resize(program.nodes.size());
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    PELLUCID_TRY(
        check_node(graph, program.nodes[i], static_cast<int>(i)).at(program.nodes[i].where));
  }
  return check_names(graph);
}

}  // namespace pellucid::program
