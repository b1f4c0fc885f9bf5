#pragma once
// The one exception that Pellucid throws for what a caller or the world can cause.
#include <stdexcept>
#include <string>

namespace pellucid {

/// `what()` is the whole sentence: "what (hint) [at file:line]". Copyable; safe from any thread.
class Error : public std::runtime_error {
 public:
  Error(std::string code, std::string message, std::string hint = "", std::string where = "");

  /// One of "invalid_argument", "not_found", "shape_mismatch", "out_of_order", "not_run",
  /// "over_budget", "out_of_memory", "corrupt_file", "unsupported", "io", "unavailable", "timeout",
  /// "cancelled", "internal".
  const std::string& code() const noexcept { return code_; }
  /// What went wrong, naming the thing and both values.
  const std::string& message() const noexcept { return message_; }
  /// What to do next; may be empty.
  const std::string& hint() const noexcept { return hint_; }
  /// The line of the program that asked for it, "file.cpp:12"; may be empty.
  const std::string& where() const noexcept { return where_; }

 private:
  std::string code_, message_, hint_, where_;
};

}  // namespace pellucid
