#include "apps/cli/trace_files.h"

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "apps/cli/json.h"
#include "files/mapped_file.h"
#include "files/safetensors.h"
#include "tensor/dtype.h"
#include "tensor/mapped_tensor.h"
#include "wire/constant_hash.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kProgramBytesMax = size_t{256} << 20;

Status not_a_prompt(const std::string& prompt) {
  return error(
      Code::kInvalidArgument,
      "a JSON list holds texts, ids, or lists of ids: [\"a\", \"b\"], [1, 2], [[1, 2], [3, 4]]",
      "the prompt {} is none of these", prompt);
}

Result<std::vector<int64_t>> ids_of(const Json& list, const std::string& prompt) {
  std::vector<int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer()) return not_a_prompt(prompt);
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

/// The rows that one --prompt stands for.
Result<std::vector<std::vector<int64_t>>> rows_of(const std::string& prompt,
                                                  const engine::LoadedModel& loaded) {
  std::vector<std::vector<int64_t>> rows;
  const Json json = prompt.starts_with("[")
                        ? Json::parse(prompt, nullptr, /*allow_exceptions=*/false)
                        : Json(Json::value_t::discarded);
  if (json.is_discarded()) {  // ordinary text, even if it begins with a bracket
    PELLUCID_ASSIGN(rows.emplace_back(), encode_prompt(loaded, prompt));
    return rows;
  }
  if (json.empty()) return not_a_prompt(prompt);
  if (json[0].is_number()) {
    PELLUCID_ASSIGN(rows.emplace_back(), ids_of(json, prompt));
    return rows;
  }
  for (const Json& row : json) {
    if (row.is_string()) {
      PELLUCID_ASSIGN(rows.emplace_back(), encode_prompt(loaded, row.get<std::string>()));
    } else if (row.is_array()) {
      PELLUCID_ASSIGN(rows.emplace_back(), ids_of(row, prompt));
    } else {
      return not_a_prompt(prompt);
    }
  }
  return rows;
}

}  // namespace

Result<wire::Program> read_program(const std::filesystem::path& path) {
  PELLUCID_ASSIGN(const std::string bytes, files::read_text_file(path, kProgramBytesMax));
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && bytes[first] == '{';
  PELLUCID_ASSIGN(wire::Program program,
                  json ? wire::program_from_json(bytes) : wire::parse_program(bytes));
  for (const wire::Node& node : program.nodes) {
    if (node.kind != wire::NodeKind::kCall) continue;
    return error(Code::kUnsupported,
                 "callbacks run in the process that made them: run it from Python or C++ there",
                 "{} calls local code ('{}')", path.string(), node.name);
  }
  return program;
}

Status give_prompts(wire::Program& program, const std::vector<std::string>& prompts,
                    const engine::LoadedModel& loaded) {
  if (prompts.empty()) {
    for (size_t i = 0; i < program.groups.size(); ++i) {
      if (!program.groups[i].tokens.empty()) continue;
      return error(Code::kInvalidArgument,
                   fmt::format("give --prompt {} times", program.groups.size()),
                   "group {} of the program has no prompt", i);
    }
    return ok_status();
  }
  if (prompts.size() != program.groups.size()) {
    return error(Code::kInvalidArgument,
                 "give --prompt once for each group, in order; a JSON list makes a batch",
                 "{} prompts for a program of {} groups", prompts.size(), program.groups.size());
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    PELLUCID_ASSIGN(program.groups[i].tokens, rows_of(prompts[i], loaded));
  }
  return ok_status();
}

Result<std::vector<at::Tensor>> read_constants(const wire::Program& program,
                                               const std::filesystem::path& path) {
  std::vector<at::Tensor> constants;
  if (program.constants.empty()) return constants;
  if (path.empty()) {
    return error(Code::kInvalidArgument, "give --constants FILE.safetensors",
                 "the program uses {} constants", program.constants.size());
  }
  PELLUCID_ASSIGN(const std::shared_ptr<const files::Safetensors> file,
                  files::Safetensors::open(path));
  std::map<std::string, const files::SafeTensor*> by_hash;
  for (const files::SafeTensor& tensor : file->tensors()) {
    PELLUCID_ASSIGN(const at::ScalarType type,
                    tensor::parse_dtype(files::safe_dtype_info(tensor.dtype).name));
    by_hash[wire::constant_hash(tensor::dtype_name(type), tensor.shape, tensor.bytes)] = &tensor;
  }
  for (size_t i = 0; i < program.constants.size(); ++i) {
    const wire::Constant& constant = program.constants[i];
    const auto found = by_hash.find(constant.hash);
    if (found == by_hash.end()) {
      return error(Code::kNotFound,
                   "the file must hold the very tensors that the program was saved with",
                   "{} has no tensor with the hash of constant {}, {}", path.string(), i,
                   constant.hash.empty() ? "which was never stored" : constant.hash);
    }
    const files::SafeTensor& tensor = *found->second;
    PELLUCID_ASSIGN(const at::ScalarType type,
                    tensor::parse_dtype(files::safe_dtype_info(tensor.dtype).name));
    // A copy: programs may change a constant's copy in place, never a mapped page.
    constants.push_back(tensor::mapped_tensor(tensor.bytes, tensor.shape, type, file).clone());
  }
  return constants;
}

Status write_results(const std::filesystem::path& path, const std::vector<program::Saved>& saved,
                     const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> kept;  // keeps the bytes alive
  std::vector<files::TensorToWrite> tensors;
  for (const program::Saved& value : saved) {
    if (value.missing) continue;
    const tensor::DtypeInfo* dtype = tensor::find_dtype(value.value.scalar_type());
    const files::SafeDtypeInfo* stored =
        dtype == nullptr ? nullptr : files::find_safe_dtype(dtype->file_name);
    if (stored == nullptr) {
      return error(Code::kUnsupported, "save it in another dtype",
                   "'{}' is {}, which safetensors files cannot hold", value.name,
                   c10::toString(value.value.scalar_type()));
    }
    kept.push_back(value.value.cpu().contiguous());
    const at::Tensor& tensor = kept.back();
    tensors.push_back({value.name,
                       stored->dtype,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.const_data_ptr()),
                        static_cast<size_t>(tensor.nbytes())}});
  }
  return files::write_safetensors(path, tensors, metadata);
}

}  // namespace pellucid::cli
