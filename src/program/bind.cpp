#include "program/bind.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/nearest.h"

namespace pellucid::program {
namespace {

using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;
using wire::Arg;

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 10> kDtypes{{
    {"float64", at::kDouble},
    {"float32", at::kFloat},
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"int64", at::kLong},
    {"int32", at::kInt},
    {"uint8", at::kByte},
    {"bool", at::kBool},
    {"int16", at::kShort},
    {"int8", at::kChar},
}};
std::string_view kind_of(const Arg& arg) {
  constexpr std::string_view kNames[] = {"None",  "bool",     "int",   "float", "string",
                                         "value", "constant", "dtype", "list"};
  return kNames[arg.value.index()];
}

at::Tensor wrapped_number(const Arg& arg) {
  at::Tensor tensor;
  if (const auto* b = std::get_if<bool>(&arg.value)) tensor = at::scalar_tensor(*b, at::kBool);
  if (const auto* i = std::get_if<int64_t>(&arg.value)) tensor = at::scalar_tensor(*i, at::kLong);
  if (const auto* d = std::get_if<double>(&arg.value)) tensor = at::scalar_tensor(*d, at::kDouble);
  if (tensor.defined()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// Numbers stay on the CPU, as torch has them: inside Python, meta kernels are Python functions, and
// a number on another device cannot be handed to them.
at::Tensor to_meta(const at::Tensor& fixed) {
  if (fixed.unsafeGetTensorImpl()->is_wrapped_number()) return fixed;
  return at::empty(fixed.sizes(), fixed.options().device(at::kMeta));
}

/// Binds the arguments of one call.
class Binder {
 public:
  Binder(Call& call) : call_(call) {}

  Status bind(const c10::Argument& argument, const Arg& arg) {
    argument_ = &argument;
    Slot slot;
    PELLUCID_TRY(fill(slot, argument.real_type(), arg));
    call_.slots.push_back(std::move(slot));
    return ok_status();
  }

  void bind_default(const c10::Argument& argument) {
    Slot slot;
    if (is_list_of_tensors(argument.real_type())) {
      slot.kind = Slot::Kind::kTensorList;
    } else {
      slot.fixed = argument.default_value().value_or(IValue());
      if (argument.real_type()->str() == "Device?" && call_.operation->makes) {
        slot.kind = Slot::Kind::kDevice;
      }
    }
    call_.slots.push_back(std::move(slot));
  }

 private:
  static bool is_list_of_tensors(const TypePtr& type) {
    return type->kind() == TypeKind::ListType &&
           type->containedType(0)->kind() == TypeKind::TensorType;
  }

  Status wrong(const Arg& arg, std::string_view wanted) const {
    return error(Code::kInvalidArgument, std::string(), "{}: argument '{}' wants {}, not {}",
                 call_.operation->name, argument_->name(), wanted, kind_of(arg));
  }

  Status tensor(TensorSlot& slot, const Arg& arg, bool optional) {
    if (const auto* ref = std::get_if<wire::ValueRef>(&arg.value)) {
      slot.operand = add({false, ref->node, ref->output});
      return ok_status();
    }
    if (const auto* ref = std::get_if<wire::ConstantRef>(&arg.value)) {
      slot.operand = add({true, ref->index, 0});
      return ok_status();
    }
    if (std::holds_alternative<std::monostate>(arg.value) && optional) return ok_status();
    slot.fixed = wrapped_number(arg);
    return slot.fixed.defined() ? ok_status()
                                : wrong(arg, optional ? "a tensor or None" : "a tensor");
  }

  int add(Operand operand) {
    const auto found = std::find(call_.operands.begin(), call_.operands.end(), operand);
    if (found != call_.operands.end()) return static_cast<int>(found - call_.operands.begin());
    call_.operands.push_back(operand);
    return static_cast<int>(call_.operands.size()) - 1;
  }

  Status tensor_list(Slot& slot, const Arg& arg, bool optional) {
    const auto* list = std::get_if<Arg::List>(&arg.value);
    if (list == nullptr) return wrong(arg, "a list of tensors");
    slot.kind = optional ? Slot::Kind::kOptionalTensorList : Slot::Kind::kTensorList;
    for (const Arg& one : *list) {
      PELLUCID_TRY(tensor(slot.tensors.emplace_back(), one, optional));
    }
    return ok_status();
  }

  Status number_list(Slot& slot, const TypePtr& element, const Arg& arg) {
    const auto* list = std::get_if<Arg::List>(&arg.value);
    Arg::List spread;  // a single number where a list of fixed length is wanted
    if (list == nullptr) {
      if (!argument_->N().has_value() || *argument_->N() <= 0) return wrong(arg, "a list");
      spread.assign(*argument_->N(), arg);
      list = &spread;
    }
    const TypeKind kind = element->kind();
    if (kind == TypeKind::FloatType) return fill_list<double>(slot, *list);
    if (kind == TypeKind::BoolType) return fill_list<bool>(slot, *list);
    return fill_list<int64_t>(slot, *list);
  }

  template <typename T>
  Status fill_list(Slot& slot, const Arg::List& list) {
    c10::List<T> numbers;
    for (const Arg& one : list) {
      if (const T* exact = std::get_if<T>(&one.value)) {
        numbers.push_back(*exact);
      } else if (const auto* i = std::get_if<int64_t>(&one.value); i && std::is_same_v<T, double>) {
        numbers.push_back(static_cast<T>(*i));
      } else {
        return wrong(one, "a list of numbers");
      }
    }
    slot.fixed = std::move(numbers);
    return ok_status();
  }

  Status fill(Slot& slot, const TypePtr& type, const Arg& arg) {
    const bool none = std::holds_alternative<std::monostate>(arg.value);
    switch (type->kind()) {
      case TypeKind::OptionalType: {
        const TypePtr inner = type->containedTypes()[0];
        if (inner->kind() == TypeKind::DeviceObjType) return device(slot);
        if (inner->kind() == TypeKind::TensorType) {
          slot.kind = Slot::Kind::kTensor;
          return tensor(slot.tensors.emplace_back(), arg, true);
        }
        if (none) return ok_status();
        return fill(slot, inner, arg);
      }
      case TypeKind::TensorType:
        slot.kind = Slot::Kind::kTensor;
        return tensor(slot.tensors.emplace_back(), arg, false);
      case TypeKind::ListType: {
        const TypePtr inner = type->containedTypes()[0];
        if (inner->kind() == TypeKind::TensorType) return tensor_list(slot, arg, false);
        if (inner->kind() == TypeKind::OptionalType) return tensor_list(slot, arg, true);
        return number_list(slot, inner, arg);
      }
      case TypeKind::BoolType:
        if (const auto* b = std::get_if<bool>(&arg.value)) return set(slot, *b);
        return wrong(arg, "a bool");
      case TypeKind::FloatType:
        if (const auto* d = std::get_if<double>(&arg.value)) return set(slot, *d);
        if (const auto* i = std::get_if<int64_t>(&arg.value)) return set(slot, double(*i));
        if (const auto* b = std::get_if<bool>(&arg.value)) return set(slot, *b ? 1.0 : 0.0);
        return wrong(arg, "a number");
      case TypeKind::NumberType:
        if (const auto* b = std::get_if<bool>(&arg.value)) return set(slot, *b);
        if (const auto* d = std::get_if<double>(&arg.value)) return set(slot, *d);
        if (const auto* i = std::get_if<int64_t>(&arg.value)) return set(slot, *i);
        return wrong(arg, "a number");
      case TypeKind::StringType:
        if (const auto* s = std::get_if<std::string>(&arg.value)) return set(slot, *s);
        return wrong(arg, "a string");
      case TypeKind::ScalarTypeType:
        return dtype(slot, arg);
      case TypeKind::LayoutType:
        return ok_status();
      case TypeKind::MemoryFormatType:
        return memory_format(slot, arg);
      case TypeKind::DeviceObjType:
        return device(slot);
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        if (const auto* i = std::get_if<int64_t>(&arg.value)) return set(slot, *i);
        if (const auto* b = std::get_if<bool>(&arg.value)) return set(slot, int64_t{*b});
        return wrong(arg, "an int");
      default:
        return error(Code::kUnsupported, "leave the argument out",
                     "{}: argument '{}' of type {} cannot be given in a program",
                     call_.operation->name, argument_->name(), type->str());
    }
  }

  template <typename T>
  Status set(Slot& slot, T value) {
    slot.fixed = IValue(std::move(value));
    return ok_status();
  }

  // Programs have no device: what is made is made where the model is.
  Status device(Slot& slot) {
    if (call_.operation->makes) slot.kind = Slot::Kind::kDevice;
    return ok_status();
  }

  Status dtype(Slot& slot, const Arg& arg) {
    const auto* named = std::get_if<wire::DtypeArg>(&arg.value);
    if (named == nullptr) return wrong(arg, "a dtype");
    PELLUCID_ASSIGN(const at::ScalarType type, dtype_by_name(named->name));
    return set(slot, static_cast<int64_t>(type));
  }

  Status memory_format(Slot& slot, const Arg& arg) {
    const auto* name = std::get_if<std::string>(&arg.value);
    if (name == nullptr) return wrong(arg, "the name of a memory format");
    if (*name == "contiguous_format") return set(slot, int64_t(at::MemoryFormat::Contiguous));
    if (*name == "preserve_format") return set(slot, int64_t(at::MemoryFormat::Preserve));
    return error(Code::kUnsupported, "use contiguous_format or preserve_format",
                 "{}: memory format '{}'", call_.operation->name, *name);
  }

  Call& call_;
  const c10::Argument* argument_ = nullptr;
};

/// Dropout and batch statistics in training mode draw random numbers or change buffers.
Status check_not_training(const Call& call) {
  const auto& arguments = call.operation->schema->arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    const IValue& value = call.slots[i].fixed;
    const bool training =
        (name == "train" || name == "training") && value.isBool() && value.toBool();
    const bool drops = name == "dropout_p" && value.isDouble() && value.toDouble() != 0;
    if (!training && !drops) continue;
    return error(Code::kUnsupported,
                 "call .eval() on the module: random operations need the group's seed, which is "
                 "not there yet",
                 "{} in training mode is random or changes its buffers", call.operation->name);
  }
  return ok_status();
}

Result<Call> bind_overload(const wire::Node& node, const std::string& name) {
  Call call;
  PELLUCID_ASSIGN(call.operation, find_operation(name));
  const auto& arguments = call.operation->schema->arguments();
  std::vector<bool> used(node.kwargs.size(), false);
  Binder binder(call);
  size_t positional = 0;
  for (const c10::Argument& argument : arguments) {
    const Arg* given = nullptr;
    if (positional < node.args.size() && !argument.kwarg_only()) given = &node.args[positional++];
    for (size_t k = 0; k < node.kwargs.size(); ++k) {
      if (node.kwargs[k].first != argument.name()) continue;
      if (given != nullptr) {
        return error(Code::kInvalidArgument, "give it once", "{}: argument '{}' is given twice",
                     call.operation->name, argument.name());
      }
      given = &node.kwargs[k].second;
      used[k] = true;
    }
    if (given != nullptr) {
      PELLUCID_TRY(binder.bind(argument, *given));
    } else if (argument.default_value().has_value()) {
      binder.bind_default(argument);
    } else {
      return error(Code::kInvalidArgument, c10::toString(*call.operation->schema),
                   "{}: argument '{}' is missing", call.operation->name, argument.name());
    }
  }
  if (positional < node.args.size()) {
    return error(Code::kInvalidArgument, c10::toString(*call.operation->schema),
                 "{}: {} positional arguments, at most {} are possible", call.operation->name,
                 node.args.size(), positional);
  }
  for (size_t k = 0; k < used.size(); ++k) {
    if (used[k]) continue;
    std::vector<std::string> known;
    for (const c10::Argument& argument : arguments) known.push_back(argument.name());
    return error(Code::kInvalidArgument,
                 did_you_mean(node.kwargs[k].first, known, c10::toString(*call.operation->schema)),
                 "{} has no argument '{}'", call.operation->name, node.kwargs[k].first);
  }
  PELLUCID_TRY(check_not_training(call));
  // Numbers stay on the CPU while shapes are inferred: of numbers alone torch would make the
  // result.
  if (call.operands.empty() && !call.operation->makes) {
    return error(Code::kInvalidArgument, "make a tensor with full or scalar_tensor",
                 "{} of numbers only: at least one operand must be a tensor", call.operation->name);
  }
  return call;
}

}  // namespace

Result<Call> bind(const wire::Node& node) {
  std::optional<Status> first;
  for (const std::string& name : overloads(node.name)) {
    Result<Call> call = bind_overload(node, name);
    if (call.ok()) return call;
    if (!first) first = call.status();
  }
  return std::move(*first).at(node.where);
}

std::vector<int> Call::operands_of(int argument) const {
  std::vector<int> out;
  for (const TensorSlot& slot : slots[argument].tensors) {
    if (slot.operand >= 0) out.push_back(slot.operand);
  }
  return out;
}

std::vector<IValue> Call::stack(std::span<const at::Tensor> values, at::Device device) const {
  const auto value_of = [&](const TensorSlot& slot) {
    if (slot.operand >= 0) return values[slot.operand];
    if (slot.fixed.defined() && device.is_meta()) return to_meta(slot.fixed);
    return slot.fixed;
  };
  std::vector<IValue> stack;
  stack.reserve(slots.size());
  for (const Slot& slot : slots) {
    switch (slot.kind) {
      case Slot::Kind::kFixed:
        stack.push_back(slot.fixed);
        break;
      case Slot::Kind::kDevice:
        stack.emplace_back(device);
        break;
      case Slot::Kind::kTensor: {
        at::Tensor tensor = value_of(slot.tensors[0]);
        stack.push_back(tensor.defined() ? IValue(std::move(tensor)) : IValue());
        break;
      }
      case Slot::Kind::kTensorList: {
        c10::List<at::Tensor> list;
        for (const TensorSlot& one : slot.tensors) list.push_back(value_of(one));
        stack.emplace_back(std::move(list));
        break;
      }
      case Slot::Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const TensorSlot& one : slot.tensors) {
          at::Tensor tensor = value_of(one);
          list.push_back(tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt);
        }
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
  return stack;
}

std::vector<at::Tensor> tensors_of(std::vector<IValue>&& stack) {
  std::vector<at::Tensor> out;
  for (IValue& value : stack) {
    if (value.isTensor()) {
      out.push_back(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(tensor);
    }
  }
  return out;
}

Result<at::ScalarType> dtype_by_name(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [spelling, type] : kDtypes) {
    if (spelling == name) return type;
    known.emplace_back(spelling);
  }
  return error(Code::kUnsupported, did_you_mean(name, known, "float32, int64, bool, ..."),
               "unknown dtype '{}'", name);
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [spelling, type] : kDtypes) {
    if (type == dtype) return std::string(spelling);
  }
  return c10::toString(dtype);
}

std::string describe(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::string describe(const at::Tensor& tensor) {
  return fmt::format("{} {}", describe(tensor.sizes()), dtype_name(tensor.scalar_type()));
}

}  // namespace pellucid::program
