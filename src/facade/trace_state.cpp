#include "facade/trace_state.h"

#include <filesystem>

#include "pellucid/torch.h"

namespace pellucid {
namespace facade {

std::string line_of(const Where& where) {
  return fmt::format("{}:{}", std::filesystem::path(where.file_name()).filename().string(),
                     where.line());
}

}  // namespace facade

using facade::line_of;
using facade::raise;

void TraceState::check_open(const char* what) const {
  if (ran) {
    raise(error(Code::kInvalidArgument, "make a new Trace: one runs once",
                "{} in a trace that has run", what));
  }
}

int32_t TraceState::add(wire::NodeKind kind, std::string name, std::vector<wire::Arg> args,
                        int32_t group, const Where& where) {
  check_open("a line");
  wire::Node node;
  node.kind = kind;
  node.name = std::move(name);
  node.args = std::move(args);
  node.group = group;
  const Steps now = steps.empty() ? Steps{} : steps.back();
  node.step_first = now.first;
  node.step_end = now.end;
  node.per_step = now.per_step;
  node.grad_enabled = false;
  node.where = line_of(where);
  program.nodes.push_back(std::move(node));
  return static_cast<int32_t>(program.nodes.size()) - 1;
}

hook::Resolved TraceState::resolve(std::string_view site, const Where& where) const {
  Result<hook::Resolved> resolved = hook::resolve_site(model.impl()->loaded.model->catalog(), site);
  if (!resolved.ok()) raise(std::move(resolved).status().at(line_of(where)));
  return *resolved;
}

Value TraceState::value(int32_t node, int32_t output) {
  return Value(shared_from_this(), Value::Kind::kNode, node, output);
}

Value TraceState::constant(const Tensor& tensor, const Where& where) {
  if (!tensor.defined()) {
    raise(
        error(Code::kInvalidArgument, "make it with Tensor::from", "a constant that holds nothing")
            .at(line_of(where)));
  }
  const auto [found, added] =
      constant_of.try_emplace(tensor.impl().get(), static_cast<int32_t>(constants.size()));
  if (added) {
    constants_kept.push_back(tensor);
    constants.push_back(to_torch(tensor));
    program.constants.push_back({"", name_of(tensor.dtype()), tensor.shape()});
  }
  return Value(shared_from_this(), Value::Kind::kConstant, found->second, 0);
}

wire::Arg TraceState::to_wire(const Value& value) {
  if (value.trace_.get() != this) {
    raise(error(
        Code::kInvalidArgument,
        "save it there, run, and use the saved tensor here; or open a second prompt in one trace",
        "a value of another trace"));
  }
  if (value.kind_ == Value::Kind::kConstant) return {wire::ConstantRef{value.index_}};
  return {wire::ValueRef{value.index_, value.output_}};
}

wire::Arg TraceState::to_wire(const Arg& arg) {
  return std::visit(
      [&](const auto& held) -> wire::Arg {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, Value>) {
          return to_wire(held);
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return to_wire(constant(held, arg.where()));
        } else if constexpr (std::is_same_v<T, Dtype>) {
          return {wire::DtypeArg{name_of(held)}};
        } else if constexpr (std::is_same_v<T, Arg::List>) {
          wire::Arg::List list;
          for (const Arg& item : held) list.push_back(to_wire(item));
          return {std::move(list)};
        } else {
          return {held};
        }
      },
      arg.value_);
}

Outputs TraceState::op(std::string name, const std::vector<Arg>& args,
                       const std::vector<std::pair<std::string, Arg>>& named, const Where& where) {
  std::vector<wire::Arg> wire_args;
  for (const Arg& arg : args) wire_args.push_back(to_wire(arg));
  std::vector<std::pair<std::string, wire::Arg>> wire_named;
  for (const auto& [key, arg] : named) wire_named.emplace_back(key, to_wire(arg));
  const int32_t node = add(wire::NodeKind::kOp, name, std::move(wire_args), -1, where);
  program.nodes[node].kwargs = std::move(wire_named);
  const int32_t count = facade::num_outputs(name);
  return Outputs(shared_from_this(), node, count, std::move(name));
}

Value TraceState::one(const char* name, const std::vector<Arg>& args, const Where& where) {
  return op(name, args, {}, where);
}

std::shared_ptr<TraceState> TraceState::of(const Arg& a, const Arg& b) {
  for (const Arg* arg : {&a, &b}) {
    if (const auto* value = std::get_if<Value>(&arg->value_)) return value->trace_;
  }
  raise(error(Code::kInvalidArgument, "turn a tensor into a value with Trace::constant",
              "an operation without any traced value"));
}

Saved TraceState::save(const std::vector<wire::Arg>& outputs, std::string name,
                       const Where& where) {
  check_open("save");
  if (name.empty()) name = fmt::format("saved_{}", saves.size());
  if (!save_names.insert(name).second) {
    raise(error(Code::kInvalidArgument, "give each its own name", "two saves named '{}'", name)
              .at(line_of(where)));
  }
  auto saved = std::make_shared<Saved::Impl>();
  for (size_t i = 0; i < outputs.size(); ++i) {
    saved->names.push_back(outputs.size() == 1 ? name : fmt::format("{}.{}", name, i));
    add(wire::NodeKind::kSave, saved->names.back(), {outputs[i]}, -1, where);
  }
  saves.push_back(saved);
  return Saved(saved);
}

int32_t TraceState::open(std::vector<std::vector<int64_t>> rows, const GenerateOptions& options,
                         const Where& where) {
  check_open("prompt");
  for (const auto& row : rows) {
    if (row.size() == rows.front().size()) continue;
    raise(error(Code::kInvalidArgument, "open one prompt each: rows are never padded",
                "rows of {} and {} tokens in one prompt", rows.front().size(), row.size())
              .at(line_of(where)));
  }
  if (options.cancelled != nullptr) cancelled = options.cancelled;
  wire::Group group = facade::group_of(options);
  group.tokens = rows;
  group.where = line_of(where);
  program.groups.push_back(std::move(group));
  groups.push_back({std::move(rows), options.on_text, {}, 0});
  return static_cast<int32_t>(groups.size()) - 1;
}

void TraceState::run() {
  check_open("run");
  ran = true;
  engine::Job job;
  job.program = program;
  job.constants = constants;
  job.cancelled = cancelled;
  job.on_token = [this](const engine::TokenEvent& event) {
    const auto& on_text = groups[event.group].on_text;
    if (on_text && !event.text.empty()) on_text(event.text);
  };
  engine::JobResult result = facade::unwrap(model.impl()->loaded.engine->run(std::move(job)));
  warnings = std::move(result.warnings);

  std::unordered_map<std::string, program::Saved*> by_name;
  for (program::Saved& saved : result.saved) by_name[saved.name] = &saved;
  for (const auto& saved : saves) {
    for (const std::string& name : saved->names) {
      program::Saved& value = *by_name.at(name);
      saved->values.push_back(value.missing ? Tensor() : from_torch(value.value));
      saved->missing.push_back(value.missing);
      saved->steps = value.steps;
    }
    saved->ran = true;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].steps_run = result.groups.at(i).steps_run;
    for (engine::RowResult& row : result.groups[i].rows) {
      groups[i].rows.push_back(facade::generation_of(std::move(row)));
    }
  }
}

}  // namespace pellucid
