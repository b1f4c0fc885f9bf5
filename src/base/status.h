#pragma once
// Errors that a caller or the world can cause: `Status` says what went wrong and what to do next,
// `Result<T>` is a value or a Status. Faults of the programmer go through base/check.h instead.
#include <fmt/core.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace pellucid {

/// Every error carries one of these; names, HTTP status and retryability are in `code_info`.
enum class Code {
  kOk,
  kInvalidArgument,  // the request itself is wrong: unknown option, malformed program
  kNotFound,         // no such model, site, weight, name
  kShapeMismatch,    // a tensor does not fit where it should go
  kOutOfOrder,       // an edit upstream of something already read, a cycle between rows
  kNotRun,           // a site, step or save that was asked for and never happened
  kOverBudget,       // a limit that the caller or the server has set
  kOutOfMemory,
  kCorruptFile,
  kUnsupported,  // well-formed, but not something that this build can do
  kIo,
  kUnavailable,
  kTimeout,
  kCancelled,
  kInternal,
};

struct CodeInfo {
  std::string_view name;
  int http_status;
  bool retryable;
};
const CodeInfo& code_info(Code code);

/// `what` names the thing and both values; `hint` says what to do next; `where` is the user's line.
struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string what;
  std::string hint;
  std::string where;

  bool ok() const { return code == Code::kOk; }
  /// "what (hint) [at where]", for terminals and exception messages.
  std::string message() const;
  Status at(std::string line) && {
    if (where.empty()) where = std::move(line);
    return std::move(*this);
  }
};

inline Status ok_status() { return {}; }

/// Carries a Status through code that can only throw (a forward pass, a callback) to the nearest
/// seam, where it becomes a Status again.
struct StatusError : std::exception {
  explicit StatusError(Status s) : status(std::move(s)), text(status.message()) {}
  const char* what() const noexcept override { return text.c_str(); }
  Status status;
  std::string text;
};

/// error(Code::kNotFound, "hint", "no weight named {}", name)
template <typename... Args>
Status error(Code code, std::string hint, fmt::format_string<Args...> what, Args&&... args) {
  return Status{code, fmt::format(what, std::forward<Args>(args)...), std::move(hint), {}};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : value_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return std::holds_alternative<T>(value_); }
  /// Only when !ok().
  const Status& status() const& { return std::get<Status>(value_); }
  Status&& status() && { return std::get<Status>(std::move(value_)); }
  /// Only when ok().
  T& operator*() & { return std::get<T>(value_); }
  const T& operator*() const& { return std::get<T>(value_); }
  T&& operator*() && { return std::get<T>(std::move(value_)); }
  T* operator->() { return &std::get<T>(value_); }
  const T* operator->() const { return &std::get<T>(value_); }

 private:
  std::variant<T, Status> value_;
};

}  // namespace pellucid

#define PELLUCID_CONCAT_INNER(a, b) a##b
#define PELLUCID_CONCAT(a, b) PELLUCID_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expr` (a Status) is an error.
#define PELLUCID_TRY(expr)                                    \
  do {                                                        \
    if (::pellucid::Status status_ = (expr); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

/// PELLUCID_ASSIGN(auto file, open(path)): the value, or returns the error.
#define PELLUCID_ASSIGN(decl, expr) \
  PELLUCID_ASSIGN_INNER(PELLUCID_CONCAT(result_, __LINE__), decl, expr)
#define PELLUCID_ASSIGN_INNER(result, decl, expr)      \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  decl = *std::move(result)
