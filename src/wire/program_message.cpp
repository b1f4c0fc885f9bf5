#include "wire/program_message.h"

#include <algorithm>
#include <limits>

namespace pellucid::wire {
namespace {

/// Protocol Buffers' strings are UTF-8: one that is not would be written and never read again.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if ((lead >= 0x80 && lead < 0xc2) || lead >= 0xf5) return false;
    const size_t more = (lead >= 0xc2) + (lead >= 0xe0) + (lead >= 0xf0);
    if (text.size() - i <= more) return false;
    uint32_t code = more == 0 ? lead : lead & (0x3f >> more);
    for (size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += more + 1;
  }
  return true;
}

bool is_utf8(const Arg& arg) {
  if (const auto* text = std::get_if<std::string>(&arg.value)) return is_utf8(*text);
  if (const auto* dtype = std::get_if<DtypeArg>(&arg.value)) return is_utf8(dtype->name);
  const auto* list = std::get_if<Arg::List>(&arg.value);
  if (list == nullptr) return true;
  return std::all_of(list->begin(), list->end(), [](const Arg& one) { return is_utf8(one); });
}

Status not_utf8(std::string_view what, const std::string& where) {
  return error(Code::kInvalidArgument, "strings of a program are UTF-8", "{} is not UTF-8", what)
      .at(is_utf8(where) ? where : "");
}

Status check_text(const Group& group) {
  for (const std::string& stop : group.stop) {
    if (!is_utf8(stop)) return not_utf8("a stop string", group.where);
  }
  return is_utf8(group.where) ? ok_status() : not_utf8("a line", "");
}

Status check_text(const Node& node) {
  bool good = is_utf8(node.name) && is_utf8(node.where);
  for (const Arg& arg : node.args) good = good && is_utf8(arg);
  for (const auto& [name, arg] : node.kwargs) good = good && is_utf8(name) && is_utf8(arg);
  return good ? ok_status() : not_utf8("a name or string of a node", node.where);
}

// Lists are nested: both directions count the depth.
void put(const Arg& arg, proto::Arg& out) {
  struct Put {
    proto::Arg& out;
    void operator()(std::monostate) const { out.set_none(true); }
    void operator()(bool b) const { out.set_boolean(b); }
    void operator()(int64_t i) const { out.set_integer(i); }
    void operator()(double d) const { out.set_number(d); }
    void operator()(const std::string& s) const { out.set_text(s); }
    void operator()(const ValueRef& ref) const {
      out.mutable_node()->set_node(ref.node);
      out.mutable_node()->set_output(ref.output);
    }
    void operator()(const ConstantRef& ref) const { out.set_constant(ref.index); }
    void operator()(const DtypeArg& dtype) const { out.set_dtype(dtype.name); }
    void operator()(const Arg::List& list) const {
      out.mutable_list();
      for (const Arg& one : list) put(one, *out.mutable_list()->add_items());
    }
  };
  std::visit(Put{out}, arg.value);
}

int depth_of(const Arg& arg) {
  const auto* list = std::get_if<Arg::List>(&arg.value);
  if (list == nullptr) return 0;
  int depth = 0;
  for (const Arg& one : *list) depth = std::max(depth, depth_of(one));
  return depth + 1;
}

Status put(const Node& node, proto::Node& out) {
  if (node.kind == NodeKind::kCall) {
    return error(Code::kUnsupported, "run it locally, or use operations instead of a callback",
                 "a program with a local callback ('{}') is never stored or sent", node.name)
        .at(node.where);
  }
  out.set_kind(static_cast<proto::NodeKind>(static_cast<int>(node.kind) + 1));
  out.set_name(node.name);
  const auto check = [&](const Arg& arg) {
    return depth_of(arg) <= kDepthMax
               ? ok_status()
               : error(Code::kInvalidArgument, "", "lists nested deeper than {}", kDepthMax)
                     .at(node.where);
  };
  for (const Arg& arg : node.args) {
    PELLUCID_TRY(check(arg));
    put(arg, *out.add_args());
  }
  for (const auto& [name, arg] : node.kwargs) {
    PELLUCID_TRY(check(arg));
    proto::NamedArg& named = *out.add_kwargs();
    named.set_name(name);
    put(arg, *named.mutable_arg());
  }
  out.set_group(node.group);
  out.set_step_first(node.step_first);
  out.set_step_end(node.step_end);
  out.set_per_step(node.per_step);
  out.set_grad_enabled(node.grad_enabled);
  out.set_where(node.where);
  return ok_status();
}

void put(const Group& group, proto::Group& out) {
  for (const auto& row : group.tokens) {
    out.add_rows()->mutable_tokens()->Add(row.begin(), row.end());
  }
  out.set_max_new_tokens(group.max_new_tokens);
  proto::Sampling& sampling = *out.mutable_sampling();
  sampling.set_temperature(group.sampling.temperature);
  sampling.set_top_k(group.sampling.top_k);
  sampling.set_top_p(group.sampling.top_p);
  sampling.set_min_p(group.sampling.min_p);
  sampling.set_repetition_penalty(group.sampling.repetition_penalty);
  sampling.set_seed(group.sampling.seed);
  for (const std::string& stop : group.stop) out.add_stop(stop);
  out.set_stop_at_eos(group.stop_at_eos);
  out.set_where(group.where);
}

/// Reads a message, counting what it holds.
class Reader {
 public:
  explicit Reader(const proto::Program& message) : message_(message) {}

  Result<Program> read() {
    Program program;
    if (message_.version() > kProgramVersion) {
      return error(Code::kUnsupported, "update this installation",
                   "the program has version {}, this build reads up to {}", message_.version(),
                   kProgramVersion);
    }
    PELLUCID_TRY(newer("Program", message_.version()));
    if (message_.version() < 1) return corrupt("no version: not a program");
    program.version = message_.version();
    PELLUCID_TRY(count("nodes", message_.nodes_size(), kNodesMax));
    PELLUCID_TRY(count("groups", message_.groups_size(), kNodesMax));
    PELLUCID_TRY(count("constants", message_.constants_size(), kNodesMax));
    program.nodes.reserve(message_.nodes_size());
    for (const auto& group : message_.groups()) {
      PELLUCID_TRY(read_group(group, program.groups.emplace_back()));
    }
    for (const auto& constant : message_.constants()) {
      PELLUCID_TRY(read_constant(constant, program.constants.emplace_back()));
    }
    for (int i = 0; i < message_.nodes_size(); ++i) {
      index_ = i;
      PELLUCID_TRY(read_node(message_.nodes(i), program.nodes.emplace_back()));
    }
    return read_budget(std::move(program));
  }

 private:
  template <typename... Args>
  static Status corrupt(fmt::format_string<Args...> what, Args&&... args) {
    return error(Code::kCorruptFile, "see proto/program.proto for the form", what,
                 std::forward<Args>(args)...);
  }

  /// Inner messages have versions too, for the day when one of them changes on its own; 0 is 1.
  static Status newer(std::string_view what, int version) {
    if (version >= 0 && version <= kProgramVersion) return ok_status();
    return error(Code::kUnsupported, "update this installation",
                 "{} has version {}, this build reads up to {}", what, version, kProgramVersion);
  }
  static Status count(std::string_view what, int have, int most) {
    return have <= most ? ok_status() : corrupt("{} {}, at most {} are accepted", have, what, most);
  }
  static Status text(std::string_view what, const std::string& in, std::string& out,
                     int most = kNameMax) {
    PELLUCID_TRY(count(what, static_cast<int>(in.size()), most));
    out = in;
    return ok_status();
  }

  Result<Program> read_budget(Program&& program) {
    const proto::Budget& in = message_.budget();
    PELLUCID_TRY(newer("Budget", in.version()));
    const bool positive = in.saved_bytes() >= 0 && in.temporary_bytes() >= 0 && in.nodes() >= 0 &&
                          in.floating_point_operations() >= 0 && in.seconds() >= 0;
    if (!positive) return corrupt("a budget below 0");
    program.budget = {in.saved_bytes(), in.temporary_bytes(), in.floating_point_operations(),
                      in.seconds(), in.nodes()};
    return std::move(program);
  }

  Status read_group(const proto::Group& in, Group& out) {
    PELLUCID_TRY(newer("Group", in.version()));
    out.tokens.reserve(in.rows_size());
    for (const proto::Row& row : in.rows()) {
      PELLUCID_TRY(newer("Row", row.version()));
      out.tokens.emplace_back(row.tokens().begin(), row.tokens().end());
    }
    out.max_new_tokens = in.max_new_tokens();
    if (out.max_new_tokens < 0) return corrupt("max_new_tokens is {}", out.max_new_tokens);
    if (in.has_sampling()) {
      const proto::Sampling& sampling = in.sampling();
      PELLUCID_TRY(newer("Sampling", sampling.version()));
      out.sampling.temperature = sampling.temperature();
      out.sampling.top_k = sampling.top_k();
      if (sampling.has_top_p()) out.sampling.top_p = sampling.top_p();
      out.sampling.min_p = sampling.min_p();
      if (sampling.has_repetition_penalty()) {
        out.sampling.repetition_penalty = sampling.repetition_penalty();
      }
      out.sampling.seed = sampling.seed();
    }
    PELLUCID_TRY(count("stop strings", in.stop_size(), kArgsMax));
    for (const std::string& stop : in.stop()) {
      PELLUCID_TRY(text("bytes of a stop string", stop, out.stop.emplace_back(), kStopMax));
    }
    out.stop_at_eos = !in.has_stop_at_eos() || in.stop_at_eos();
    return text("bytes of a line", in.where(), out.where);
  }

  Status read_constant(const proto::Constant& in, Constant& out) {
    PELLUCID_TRY(newer("Constant", in.version()));
    PELLUCID_TRY(text("bytes of a hash", in.hash(), out.hash));
    PELLUCID_TRY(text("bytes of a dtype", in.dtype(), out.dtype));
    PELLUCID_TRY(count("dimensions", in.shape_size(), kDimsMax));
    int64_t elements = 1;
    for (const int64_t size : in.shape()) {
      if (size < 0 || __builtin_mul_overflow(elements, std::max<int64_t>(size, 1), &elements)) {
        return corrupt("a constant of impossible size");
      }
      out.shape.push_back(size);
    }
    return ok_status();
  }

  Status read_node(const proto::Node& in, Node& out) {
    PELLUCID_TRY(newer("Node", in.version()));
    if (in.kind() < proto::OP || in.kind() > proto::WEIGHT) {
      return error(Code::kUnsupported, "update this installation",
                   "node {} is of kind {}, which this build does not know", index_,
                   static_cast<int>(in.kind()));
    }
    out.kind = static_cast<NodeKind>(in.kind() - 1);
    PELLUCID_TRY(text("bytes of a name", in.name(), out.name));
    PELLUCID_TRY(text("bytes of a line", in.where(), out.where));
    PELLUCID_TRY(count("arguments", in.args_size(), kArgsMax));
    PELLUCID_TRY(count("arguments", in.kwargs_size(), kArgsMax));
    for (const proto::Arg& arg : in.args()) {
      PELLUCID_TRY(read_arg(arg, out.args.emplace_back(), 0));
    }
    for (const proto::NamedArg& named : in.kwargs()) {
      PELLUCID_TRY(newer("NamedArg", named.version()));
      auto& [name, arg] = out.kwargs.emplace_back();
      PELLUCID_TRY(text("bytes of a name", named.name(), name));
      PELLUCID_TRY(read_arg(named.arg(), arg, 0));
    }
    const bool site = out.kind == NodeKind::kRead || out.kind == NodeKind::kWrite;
    out.group = in.has_group() ? in.group() : (site ? 0 : -1);
    if (out.group < -1 || out.group >= message_.groups_size()) {
      return corrupt("node {} is of group {}, there are {}", index_, out.group,
                     message_.groups_size());
    }
    out.step_first = in.step_first();
    out.step_end = in.step_end();
    if (out.step_end == 0 && out.step_first < std::numeric_limits<int32_t>::max()) {
      out.step_end = out.step_first + 1;
    }
    if (out.step_first < 0 || out.step_end <= out.step_first) {
      return corrupt("node {} runs at steps [{}, {})", index_, in.step_first(), in.step_end());
    }
    out.per_step = in.per_step();
    out.grad_enabled = !in.has_grad_enabled() || in.grad_enabled();
    return ok_status();
  }

  Status read_arg(const proto::Arg& in, Arg& out, int depth) {
    PELLUCID_TRY(newer("Arg", in.version()));
    switch (in.value_case()) {
      case proto::Arg::kNone:
        break;
      case proto::Arg::kBoolean:
        out.value = in.boolean();
        break;
      case proto::Arg::kInteger:
        out.value = int64_t{in.integer()};
        break;
      case proto::Arg::kNumber:
        out.value = in.number();
        break;
      case proto::Arg::kText: {
        std::string value;
        PELLUCID_TRY(text("bytes of a string", in.text(), value, kStopMax));
        out.value = std::move(value);
        break;
      }
      case proto::Arg::kNode: {
        const proto::Value& ref = in.node();
        PELLUCID_TRY(newer("Value", ref.version()));
        if (ref.node() < 0 || ref.node() >= index_ || ref.output() < 0) {
          return corrupt("node {} uses output {} of node {}: only nodes before it are there",
                         index_, ref.output(), ref.node());
        }
        out.value = ValueRef{ref.node(), ref.output()};
        break;
      }
      case proto::Arg::kConstant:
        if (in.constant() < 0 || in.constant() >= message_.constants_size()) {
          return corrupt("node {} uses constant {}, there are {}", index_, in.constant(),
                         message_.constants_size());
        }
        out.value = ConstantRef{in.constant()};
        break;
      case proto::Arg::kDtype: {
        DtypeArg dtype;
        PELLUCID_TRY(text("bytes of a dtype", in.dtype(), dtype.name));
        out.value = std::move(dtype);
        break;
      }
      case proto::Arg::kList: {
        PELLUCID_TRY(newer("List", in.list().version()));
        if (depth >= kDepthMax)
          return corrupt("node {}: lists nested deeper than {}", index_, kDepthMax);
        PELLUCID_TRY(count("items of a list", in.list().items_size(), kArgsMax));
        Arg::List list(in.list().items_size());
        for (int i = 0; i < in.list().items_size(); ++i) {
          PELLUCID_TRY(read_arg(in.list().items(i), list[i], depth + 1));
        }
        out.value = std::move(list);
        break;
      }
      case proto::Arg::VALUE_NOT_SET:
        return corrupt("node {}: an argument without a value", index_);
    }
    return ok_status();
  }

  const proto::Program& message_;
  int index_ = 0;
};

}  // namespace

Status to_message(const Program& program, proto::Program& message) {
  message.set_version(program.version);
  for (const Group& group : program.groups) {
    PELLUCID_TRY(check_text(group));
    put(group, *message.add_groups());
  }
  for (const Node& node : program.nodes) {
    PELLUCID_TRY(check_text(node));
    PELLUCID_TRY(put(node, *message.add_nodes()));
  }
  for (const Constant& constant : program.constants) {
    if (!is_utf8(constant.hash) || !is_utf8(constant.dtype)) return not_utf8("a constant", "");
    proto::Constant& out = *message.add_constants();
    out.set_hash(constant.hash);
    out.set_dtype(constant.dtype);
    out.mutable_shape()->Add(constant.shape.begin(), constant.shape.end());
  }
  proto::Budget& budget = *message.mutable_budget();
  budget.set_saved_bytes(program.budget.saved_bytes);
  budget.set_temporary_bytes(program.budget.temporary_bytes);
  budget.set_floating_point_operations(program.budget.floating_point_operations);
  budget.set_seconds(program.budget.seconds);
  budget.set_nodes(program.budget.nodes);
  return ok_status();
}

Result<Program> from_message(const proto::Program& message) { return Reader(message).read(); }

}  // namespace pellucid::wire
