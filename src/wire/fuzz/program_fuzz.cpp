// Any bytes as a program, in both forms: an error with a sentence, or a program that survives being
// written and read again.
#include <cstdlib>

#include "wire/program.h"

using namespace pellucid;

namespace {

void check(const Result<wire::Program>& parsed, bool has_json) {
  if (!parsed.ok()) {
    if (parsed.status().what.empty()) std::abort();
    return;
  }
  const auto bytes = wire::serialise(*parsed);
  if (!bytes.ok()) std::abort();
  const auto again = wire::parse_program(*bytes);
  if (!again.ok()) std::abort();
  // Not-a-number differs from itself: compare what is written.
  if (*wire::serialise(*again) != *bytes) std::abort();
  if (has_json && !wire::to_json(*parsed).ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(wire::parse_program(bytes), false);
  check(wire::program_from_json(bytes), true);
  return 0;
}
