#pragma once
// Faults of the programmer: logged and thrown, never an abort, since a shared server outlives one
// request's bug. Never for user input: that is a Status.
#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace pellucid {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* condition, const char* file, int line, std::string what);

}  // namespace pellucid

/// PELLUCID_CHECK(a == b, "a is {}, b is {}", a, b)
#define PELLUCID_CHECK(condition, ...)                                                  \
  do {                                                                                  \
    if (!(condition)) [[unlikely]] {                                                    \
      ::pellucid::fail_check(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
    }                                                                                   \
  } while (false)
