#pragma once
// What `pellucid trace` reads and writes: a stored program, its prompts and constants, its results.
#include "apps/cli/common.h"

namespace pellucid::cli {

/// JSON or binary. Errors: those of the parsers; kUnsupported for programs with local callbacks.
Result<wire::Program> read_program(const std::filesystem::path& path);

/// Gives each group its rows: text, or a JSON list (of texts, of ids, of lists of ids). Without
/// any, the groups must have brought their own. Errors: kInvalidArgument (numbers of prompts and
/// groups).
Status give_prompts(wire::Program& program, const std::vector<std::string>& prompts,
                    const engine::LoadedModel& loaded);

/// The program's constants, found by content hash in a safetensors file ("" when there is none),
/// and checked by it. Errors: kNotFound (names the hash), those of the file.
Result<std::vector<at::Tensor>> read_constants(const wire::Program& program,
                                               const std::filesystem::path& path);

/// All saved values that are there, by name, whole or not at all.
Status write_results(const std::filesystem::path& path, const std::vector<program::Saved>& saved,
                     const std::map<std::string, std::string>& metadata);

}  // namespace pellucid::cli
