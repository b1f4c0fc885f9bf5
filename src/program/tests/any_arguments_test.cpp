// Every listed operation with arguments drawn at random from its schema's types: refused with a
// sentence, or run to what the plan said. Never a crash, an internal error or an unplanned size.
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "program/ops.h"
#include "program/tests/toy.h"

using namespace toy;

namespace {

class Chooser {
 public:
  explicit Chooser(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return random_() % n; }

  Arg arg(const c10::TypePtr& type, std::optional<int32_t> length) {
    using c10::TypeKind;
    if (below(40) == 0) return odd();
    switch (type->kind()) {
      case TypeKind::OptionalType:
        return below(3) == 0 ? none() : arg(type->containedTypes()[0], length);
      case TypeKind::TensorType:
        return below(8) == 0 ? number() : c(static_cast<int>(below(kConstants)));
      case TypeKind::ListType: {
        Arg::List items;
        for (size_t n = length && *length > 0 ? size_t(*length) : below(4); n > 0; --n) {
          items.push_back(arg(type->containedTypes()[0], {}));
        }
        return list(std::move(items));
      }
      case TypeKind::BoolType:
        return b(below(2) == 0);
      case TypeKind::FloatType:
        return below(3) == 0 ? f(0.5) : number();
      case TypeKind::NumberType:
        return number();
      case TypeKind::StringType: {
        const char* kWords[] = {"mean",      "sum", "amax", "floor", "linear",  "valid",
                                "ij,jk->ik", "ij",  "",     "fro",   "constant"};
        return {std::string(kWords[below(11)])};
      }
      case TypeKind::ScalarTypeType: {
        const char* kTypes[] = {"float32", "float64", "int64", "bool", "bfloat16"};
        return dtype(kTypes[below(5)]);
      }
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return integer();
      default:
        return none();
    }
  }

  static constexpr size_t kConstants = 9;
  static std::vector<at::Tensor> constants() {
    return {at::arange(6, at::kFloat).reshape({2, 3}),
            at::arange(12, at::kFloat).reshape({3, 4}),
            at::arange(6, at::kFloat).reshape({3, 2}).t(),
            at::arange(4, at::kLong).reshape({2, 2}),
            at::ones({2, 3}, at::kBool),
            at::zeros({0, 3}),
            at::arange(3, at::kLong),
            at::full({}, 2.5),
            at::arange(24, at::kDouble).reshape({2, 3, 4})};
  }

 private:
  Arg integer() {
    const int64_t kNumbers[] = {0,
                                1,
                                2,
                                3,
                                -1,
                                -2,
                                5,
                                1,
                                0,
                                -7,
                                int64_t{1} << 40,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};
    return i(kNumbers[below(13)]);
  }
  Arg number() {
    switch (below(5)) {
      case 0:
        return integer();
      case 1:
        return b(true);
      case 2:
        return f(std::numeric_limits<double>::infinity());
      default:
        return f(1.5);
    }
  }
  Arg odd() {
    switch (below(4)) {
      case 0:
        return {std::string("odd")};
      case 1:
        return none();
      case 2:
        return list({list({i(1)}), none()});
      default:
        return dtype("float31");
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("ops: arguments at random are refused with a sentence or give what the plan said") {
  const char* times = std::getenv("PELLUCID_FUZZ_TIMES");  // more by hand
  const int tries = times != nullptr ? std::atoi(times) : 12;
  Chooser chooser(7);
  int planned = 0, ran = 0;
  for (const std::string_view name : program::allowed_operations()) {
    const program::Operation& operation = **program::find_operation(name);
    for (int attempt = 0; attempt < tries; ++attempt) {
      Script s;
      for (const at::Tensor& constant : Chooser::constants()) s.constant(constant);
      std::vector<Arg> args;
      std::vector<std::pair<std::string, Arg>> kwargs;
      for (const c10::Argument& argument : operation.schema->arguments()) {
        if (argument.default_value() && chooser.below(3) > 0) break;
        Arg arg = chooser.arg(argument.real_type(), argument.N());
        if (argument.kwarg_only()) {
          kwargs.emplace_back(argument.name(), std::move(arg));
        } else {
          args.push_back(std::move(arg));
        }
      }
      // In-place operations get a copy: constants are never written to.
      const auto* first = args.empty() ? nullptr : std::get_if<wire::ConstantRef>(&args[0].value);
      if (!operation.written.empty() && first != nullptr) args[0] = v(s.op("clone", {args[0]}));
      const int op = s.op(std::string(name), args, kwargs);
      s.save("out", op);
      s.program.budget.temporary_bytes = 1 << 20;
      CAPTURE(name);
      CAPTURE(attempt);
      if (std::getenv("PELLUCID_FUZZ_NAMES") != nullptr)
        fmt::print(stderr, "{} {}\n", name, attempt);
      const auto plan = s.plan();
      if (!plan.ok()) {
        CHECK_FALSE(plan.status().what.empty());
        CHECK(plan.status().code != Code::kInternal);
        for (const char* bomb : {"allocate", "bad_alloc", "length_error"}) {
          CHECK_MESSAGE(plan.status().what.find(bomb) == std::string::npos, plan.status().what);
        }
        CHECK_MESSAGE(plan.status().what.find("no shape function") == std::string::npos,
                      plan.status().what);
        continue;
      }
      ++planned;
      try {
        (void)Machine(s).go();
        ++ran;
      } catch (const program::RunError& e) {
        // torch's own check of values; what is too big must have been refused before
        const std::string& what = e.status().what;
        CHECK_MESSAGE(what.find("allocate") == std::string::npos, what);
        CHECK_MESSAGE(what.find("out of memory") == std::string::npos, what);
      } catch (const std::exception& e) {
        FAIL_CHECK(std::string(name), ": ", std::string(e.what()));
      }
    }
  }
  MESSAGE(planned, " planned, ", ran, " ran");
  CHECK(ran > 1000 * tries / 12);
}
