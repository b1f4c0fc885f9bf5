// wire::Program as Python sees it: a list of nodes that grows line by line.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "wire/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid::python {
namespace {

using wire::Arg;

constexpr int kListDepthMax = 8;

// Python ints beyond 64 bits, objects of unknown types: refused, never rounded or dropped.
Arg to_arg(nb::handle object, int depth = 0) {
  if (object.is_none()) return {};
  if (PyBool_Check(object.ptr())) return {object.ptr() == Py_True};
  if (PyLong_Check(object.ptr())) return {nb::cast<int64_t>(object)};
  if (PyFloat_Check(object.ptr())) return {nb::cast<double>(object)};
  if (PyUnicode_Check(object.ptr())) return {nb::cast<std::string>(object)};
  if (nb::isinstance<wire::ValueRef>(object)) return {nb::cast<wire::ValueRef>(object)};
  if (nb::isinstance<wire::ConstantRef>(object)) return {nb::cast<wire::ConstantRef>(object)};
  if (nb::isinstance<wire::DtypeArg>(object)) return {nb::cast<wire::DtypeArg>(object)};
  if ((PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) && depth < kListDepthMax) {
    Arg::List list;
    for (const nb::handle item : object) list.push_back(to_arg(item, depth + 1));
    return {std::move(list)};
  }
  throw StatusError{error(Code::kUnsupported, "pass numbers, strings, dtypes and tensors",
                          "an argument of type {} cannot be part of a program",
                          nb::cast<std::string>(nb::str(object.type().attr("__name__"))))};
}

nb::object from_arg(const Arg& arg) {
  return std::visit(
      [](const auto& value) -> nb::object {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<T, Arg::List>) {
          nb::list list;
          for (const Arg& item : value) list.append(from_arg(item));
          return list;
        } else {
          return nb::cast(value);
        }
      },
      arg.value);
}

constexpr std::pair<const char*, wire::NodeKind> kKinds[] = {
    {"op", wire::NodeKind::kOp},       {"read", wire::NodeKind::kRead},
    {"write", wire::NodeKind::kWrite}, {"save", wire::NodeKind::kSave},
    {"part", wire::NodeKind::kPart},   {"weight", wire::NodeKind::kWeight},
    {"call", wire::NodeKind::kCall},
};

wire::NodeKind to_kind(const std::string& name) {
  for (const auto& [kind_name, kind] : kKinds) {
    if (name == kind_name) return kind;
  }
  throw nb::value_error("no such kind of node");
}

const char* kind_name(wire::NodeKind kind) {
  for (const auto& [name, listed] : kKinds) {
    if (kind == listed) return name;
  }
  return "";
}

int add_node(wire::Program& program, const std::string& kind, std::string name, nb::sequence args,
             nb::dict kwargs, int group, int step_first, int step_end, bool per_step,
             bool grad_enabled, std::string where) {
  wire::Node node;
  node.kind = to_kind(kind);
  node.name = std::move(name);
  for (const nb::handle arg : args) node.args.push_back(to_arg(arg));
  for (const auto& [key, value] : kwargs) {
    node.kwargs.emplace_back(nb::cast<std::string>(key), to_arg(value));
  }
  node.group = group;
  node.step_first = step_first;
  node.step_end = step_end;
  node.per_step = per_step;
  node.grad_enabled = grad_enabled;
  node.where = std::move(where);
  program.nodes.push_back(std::move(node));
  return static_cast<int>(program.nodes.size()) - 1;
}

nb::object kwargs_of(const wire::Node& node) {
  nb::dict kwargs;
  for (const auto& [key, value] : node.kwargs) kwargs[key.c_str()] = from_arg(value);
  return kwargs;
}

nb::object args_of(const wire::Node& node) {
  nb::list args;
  for (const Arg& arg : node.args) args.append(from_arg(arg));
  return args;
}

void bind_arguments(nb::module_& module) {
  nb::class_<wire::ValueRef>(module, "ValueRef")
      .def(
          "__init__",
          [](wire::ValueRef* self, int32_t node, int32_t output) {
            new (self) wire::ValueRef{node, output};
          },
          "node"_a, "output"_a = 0)
      .def_ro("node", &wire::ValueRef::node)
      .def_ro("output", &wire::ValueRef::output)
      .def(nb::self == nb::self)
      .def("__repr__",
           [](const wire::ValueRef& ref) { return fmt::format("%{}.{}", ref.node, ref.output); });
  nb::class_<wire::ConstantRef>(module, "ConstantRef")
      .def("__init__",
           [](wire::ConstantRef* self, int32_t index) { new (self) wire::ConstantRef{index}; })
      .def_ro("index", &wire::ConstantRef::index)
      .def(nb::self == nb::self)
      .def("__repr__", [](const wire::ConstantRef& ref) { return fmt::format("#{}", ref.index); });
  nb::class_<wire::DtypeArg>(module, "DtypeArg")
      .def("__init__", [](wire::DtypeArg* self,
                          std::string name) { new (self) wire::DtypeArg{std::move(name)}; })
      .def_ro("name", &wire::DtypeArg::name)
      .def(nb::self == nb::self)
      .def("__repr__", [](const wire::DtypeArg& dtype) { return dtype.name; });
}

void bind_node(nb::module_& module) {
  nb::class_<wire::Node>(module, "Node")
      .def_prop_ro("kind", [](const wire::Node& node) { return kind_name(node.kind); })
      .def_ro("name", &wire::Node::name)
      .def_prop_ro("args", &args_of)
      .def_prop_ro("kwargs", &kwargs_of)
      .def_ro("group", &wire::Node::group)
      .def_ro("step_first", &wire::Node::step_first)
      .def_ro("step_end", &wire::Node::step_end)
      .def_ro("per_step", &wire::Node::per_step)
      .def_ro("grad_enabled", &wire::Node::grad_enabled)
      .def_ro("where", &wire::Node::where)
      .def("__repr__", [](const wire::Node& node) {
        return nb::str("<{} {} {}>").format(kind_name(node.kind), node.name, args_of(node));
      });
}

int add_group(wire::Program& program, std::vector<std::vector<int64_t>> tokens,
              int64_t max_new_tokens, double temperature, int64_t top_k, double top_p, double min_p,
              double repetition_penalty, uint64_t seed, std::vector<std::string> stop,
              bool stop_at_eos, std::string where) {
  program.groups.push_back({.tokens = std::move(tokens),
                            .max_new_tokens = max_new_tokens,
                            .sampling = {.temperature = temperature,
                                         .top_k = top_k,
                                         .top_p = top_p,
                                         .min_p = min_p,
                                         .repetition_penalty = repetition_penalty,
                                         .seed = seed},
                            .stop = std::move(stop),
                            .stop_at_eos = stop_at_eos,
                            .where = std::move(where)});
  return static_cast<int>(program.groups.size()) - 1;
}

}  // namespace

void bind_program(nb::module_& module) {
  bind_arguments(module);
  bind_node(module);
  nb::class_<wire::Program>(module, "Program")
      .def(nb::init<>())
      .def_prop_ro("version", [](const wire::Program& program) { return program.version; })
      .def("add_group", &add_group, "tokens"_a, "max_new_tokens"_a = 0, "temperature"_a = 0.0,
           "top_k"_a = 0, "top_p"_a = 1.0, "min_p"_a = 0.0, "repetition_penalty"_a = 1.0,
           "seed"_a = 0, "stop"_a = std::vector<std::string>(), "stop_at_eos"_a = true,
           "where"_a = "")
      .def("add_node", &add_node, "kind"_a, "name"_a, "args"_a, "kwargs"_a, "group"_a,
           "step_first"_a, "step_end"_a, "per_step"_a, "grad_enabled"_a, "where"_a)
      .def(
          "add_constant",
          [](wire::Program& program, std::string dtype, std::vector<int64_t> shape) {
            program.constants.push_back({"", std::move(dtype), std::move(shape)});
            return static_cast<int>(program.constants.size()) - 1;
          },
          "dtype"_a, "shape"_a)
      .def_prop_ro("num_groups", [](const wire::Program& p) { return p.groups.size(); })
      .def_prop_ro("num_constants", [](const wire::Program& p) { return p.constants.size(); })
      .def_prop_ro("nodes", [](const wire::Program& p) { return p.nodes; })
      .def("tokens", [](const wire::Program& p, size_t group) { return p.groups.at(group).tokens; })
      .def(
          "without_tokens",
          [](const wire::Program& p) {
            wire::Program copy = p;
            for (wire::Group& group : copy.groups) group.tokens.clear();
            return copy;
          },
          "A copy whose prompts are given later: what is stored.")
      .def(nb::self == nb::self);
  bind_program_io(module);
}

}  // namespace pellucid::python
