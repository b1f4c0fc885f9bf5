#pragma once
// Filters, tests, functions and methods: one list each, asked by the parser (is it known?) and by
// the interpreter (do it).
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/value.h"

namespace pellucid::text::jinja {

/// What a template may spend. `charge` fails with kOverBudget once it is used up.
class Budget {
 public:
  Status step() { return --steps_ < 0 ? spent("steps") : ok_status(); }
  /// Before anything of that size is made.
  Status charge(size_t bytes) {
    if (bytes > bytes_) return spent("bytes");
    bytes_ -= bytes;
    return ok_status();
  }

 private:
  static Status spent(std::string_view what) {
    return error(Code::kOverBudget, "the template loops or grows without end",
                 "the chat template used up its {}", what);
  }
  int64_t steps_ = 2'000'000;
  size_t bytes_ = size_t{256} << 20;
};

using Arguments = std::vector<Value>;

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
bool is_function(std::string_view name);
bool is_method(std::string_view name);
std::vector<std::string> filter_names();
std::vector<std::string> test_names();
std::vector<std::string> method_names();

/// arguments[0] is the value itself.
Result<Value> run_filter(std::string_view name, const Arguments& arguments, Budget& budget);
Result<bool> run_test(std::string_view name, const Arguments& arguments, Budget& budget);
Result<Value> run_method(std::string_view name, const Arguments& arguments, Budget& budget);
Result<Value> run_function(std::string_view name, const Arguments& arguments, Budget& budget);

/// Python's operators. `op`: + - * / // % ** ~
Result<Value> arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget);
/// `op`: == != < <= > >= in, "not in"
Result<bool> compare(std::string_view op, const Value& a, const Value& b, Budget& budget);
/// str(value), as it is printed. Errors: kUnsupported for lists, dicts and namespaces.
Result<Text> to_text(const Value& value);
/// What a `for` loop goes over. Errors: kInvalidArgument when it cannot.
Result<std::vector<Value>> to_items(const Value& value, Budget& budget);

}  // namespace pellucid::text::jinja
