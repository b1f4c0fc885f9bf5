#include "program/ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "base/nearest.h"

namespace pellucid::program {
namespace {

// Return (a view of) their first operand now and then, though their schema does not say so.
constexpr std::string_view kMayReturnInput[] = {"dropout",          "type_as",
                                                "einsum",           "sum_to_size",
                                                "atleast_1d",       "atleast_2d",
                                                "atleast_3d",       "positive",
                                                "meshgrid",         "broadcast_tensors",
                                                "cartesian_prod",   "meshgrid.indexing",
                                                "linalg_multi_dot", "pad",
                                                "matrix_power",     "linalg_matrix_power"};

struct Reason {
  std::string_view prefix;
  std::string_view why;
};
// The longest prefix that fits wins.
constexpr Reason kReasons[] = {
    {"_", "names that begin with _ are internal to torch"},
    {"as_strided", "it reads memory outside of its operand"},
    {"set_", "it makes a tensor point at other memory"},
    {"resize", "it changes a tensor's memory"},
    {"empty", "its elements are whatever was in memory: use zeros"},
    {"new_empty", "its elements are whatever was in memory: use new_zeros"},
    {"rand", "random operations need the group's seed, which is not there yet: pass a constant"},
    {"normal", "random operations need the group's seed, which is not there yet: pass a constant"},
    {"bernoulli",
     "random operations need the group's seed, which is not there yet: pass a constant"},
    {"multinomial", "random operations need the group's seed, which is not there yet"},
    {"uniform", "random operations need the group's seed, which is not there yet: pass a constant"},
    {"rrelu", "random operations need the group's seed, which is not there yet"},
    {"exponential_", "random operations need the group's seed, which is not there yet"},
    {"item", "a program never sees numbers: save the value, or use where"},
    {"bincount", "nothing bounds the size of its result: use one_hot(...).sum(0)"},
    {"histc", "nothing bounds the size of its result: use bucketize and one_hot(...).sum(0)"},
    {"from_file", "programs touch no files"},
    {"to.device", "programs have no device: use to.dtype"},
    {"cuda", "programs have no device"},
    {"cpu", "programs have no device"},
};

using Sets = std::vector<c10::Symbol>;

void collect(const c10::AliasInfo* info, Sets& sets) {
  if (info == nullptr) return;
  for (const c10::Symbol& set : info->beforeSets()) sets.push_back(set);
  for (const c10::AliasInfo& inner : info->containedTypes()) collect(&inner, sets);
}

bool is_tensor_type(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (type->kind() != c10::TypeKind::OptionalType && type->kind() != c10::TypeKind::ListType) {
    return false;
  }
  for (const c10::TypePtr& inner : type->containedTypes()) {
    if (is_tensor_type(inner)) return true;
  }
  return false;
}

void fill_aliases(Operation& operation) {
  const auto& arguments = operation.schema->arguments();
  const auto& returns = operation.schema->returns();
  operation.makes = true;
  for (size_t a = 0; a < arguments.size(); ++a) {
    const c10::AliasInfo* info = arguments[a].alias_info();
    if (is_tensor_type(arguments[a].real_type())) operation.makes = false;
    if (info == nullptr) continue;
    if (info->isWrite()) operation.written.push_back(static_cast<int>(a));
    Sets of_argument;
    collect(info, of_argument);
    for (size_t r = 0; r < returns.size(); ++r) {
      Sets of_return;
      collect(returns[r].alias_info(), of_return);
      const bool shared = std::any_of(of_return.begin(), of_return.end(), [&](c10::Symbol set) {
        return std::find(of_argument.begin(), of_argument.end(), set) != of_argument.end();
      });
      if (shared) operation.aliases.emplace_back(r, a);
    }
  }
  const std::string_view bare = std::string_view(operation.name).substr(6);
  const auto end = std::end(kMayReturnInput);
  if (operation.aliases.empty() && std::find(std::begin(kMayReturnInput), end, bare) != end) {
    for (size_t a = 0; a < arguments.size(); ++a) {
      if (!is_tensor_type(arguments[a].real_type())) continue;
      operation.aliases.emplace_back(0, a);
      break;
    }
  }
}

class Registry {
 public:
  Registry() {
    for (const std::string_view bare : allowed_operations()) {
      const size_t dot = bare.find('.');
      const std::string base = fmt::format("aten::{}", bare.substr(0, dot));
      const std::string overload(dot == bare.npos ? "" : bare.substr(dot + 1));
      const auto found = c10::Dispatcher::singleton().findSchema({base, overload});
      PELLUCID_CHECK(found.has_value(), "listed operation {} is not in this torch", bare);
      const c10::OperatorHandle& handle = handles_.emplace_back(*found);
      Operation& operation = operations_.emplace_back();
      operation.name = fmt::format("aten::{}", bare);
      operation.handle = &handle;
      operation.schema = &handle.schema();
      fill_aliases(operation);
      by_name_.emplace(operation.name, &operation);
      by_base_[base].push_back(operation.name);
    }
  }

  const Operation* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  std::vector<std::string> of_base(const std::string& base) const {
    const auto found = by_base_.find(base);
    return found == by_base_.end() ? std::vector<std::string>{} : found->second;
  }

 private:
  std::deque<c10::OperatorHandle> handles_;
  std::deque<Operation> operations_;
  std::unordered_map<std::string, const Operation*> by_name_;
  std::unordered_map<std::string, std::vector<std::string>> by_base_;
};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

std::string with_namespace(std::string_view name) {
  return name.find("::") == name.npos ? fmt::format("aten::{}", name) : std::string(name);
}

}  // namespace

Result<const Operation*> find_operation(std::string_view name) {
  const std::string full = with_namespace(name);
  if (const Operation* found = registry().find(full)) return found;
  const std::string bare = full.starts_with("aten::") ? full.substr(6) : full;
  const Reason* best = nullptr;
  for (const Reason& reason : kReasons) {
    if (!bare.starts_with(reason.prefix)) continue;
    if (best == nullptr || reason.prefix.size() > best->prefix.size()) best = &reason;
  }
  std::vector<std::string> known = registry().of_base(full.substr(0, full.find('.')));
  if (known.empty()) {
    for (const std::string_view listed : allowed_operations()) {
      known.push_back(fmt::format("aten::{}", listed));
    }
  }
  std::string hint =
      best != nullptr
          ? std::string(best->why)
          : did_you_mean(full, known,
                         "compose it of listed operations, or run it locally in a callback");
  return error(Code::kUnsupported, std::move(hint),
               "operation {} is not on the list of operations that a program may use", full);
}

std::vector<std::string> overloads(std::string_view name) {
  const std::string full = with_namespace(name);
  if (full.find('.') != full.npos) return {full};
  std::vector<std::string> all = registry().of_base(full);
  if (all.empty()) return {full};
  // An exact name first: "aten::relu" is itself.
  std::stable_partition(all.begin(), all.end(),
                        [&](const std::string& one) { return one == full; });
  return all;
}

}  // namespace pellucid::program
