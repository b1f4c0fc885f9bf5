// A test tool: replays programs without sites, for Python to compare with torch.
//   program_replay CONSTANTS.safetensors PROGRAMS.jsonl RESULTS.safetensors
// Line i of PROGRAMS is a program as JSON; its constant k is the tensor "i.k" of CONSTANTS, its
// saved values are "i.NAME" of RESULTS. Prints a JSON line for each: {"saved": [names]} or
// {"error", "code", "hint"}. Each program is stored and loaded again before it runs.
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <deque>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "files/safetensors.h"
#include "program/plan.h"
#include "program/run.h"
#include "tensor/dtype.h"
#include "tensor/mapped_tensor.h"

namespace pellucid {
namespace {

at::ScalarType type_of(files::SafeDtype dtype) {
  return *tensor::parse_dtype(files::safe_dtype_info(dtype).name);
}

Result<std::vector<program::Saved>> replay(const std::string& json, size_t line,
                                           const files::Safetensors& file) {
  PELLUCID_ASSIGN(wire::Program written, wire::program_from_json(json));
  PELLUCID_ASSIGN(const std::string bytes, wire::serialise(written));
  PELLUCID_ASSIGN(wire::Program loaded, wire::parse_program(bytes));
  if (!(loaded == written)) return error(Code::kInternal, "", "storing changed the program");

  hook::Catalog catalog;
  catalog.sizes = {1, 4, 2, 2, 2, 8, 11};
  program::PlanOptions options;
  options.catalog = &catalog;
  for (size_t k = 0; k < loaded.constants.size(); ++k) {
    const files::SafeTensor* found = file.find(fmt::format("{}.{}", line, k));
    if (found == nullptr) return error(Code::kNotFound, "", "no tensor {}.{}", line, k);
    options.constants.push_back(
        tensor::mapped_tensor(found->bytes, found->shape, type_of(found->dtype), nullptr).clone());
  }
  program::Environment environment;
  environment.constants = options.constants;
  PELLUCID_ASSIGN(auto plan, program::Plan::make(std::move(loaded), std::move(options)));
  try {
    const auto run = program::Run::make(plan, std::move(environment));
    run->begin();
    return run->finish();
  } catch (const program::RunError& e) {
    return e.status();
  } catch (const std::exception& e) {
    return error(Code::kInternal, "", "{}", e.what());
  }
}

int main_or_throw(char** argv) {
  const auto constants = files::Safetensors::open(argv[1]);
  if (!constants.ok()) throw std::runtime_error(constants.status().message());
  std::ifstream programs(argv[2]);
  std::vector<files::TensorToWrite> results;
  std::deque<at::Tensor> alive;
  std::string json;
  for (size_t line = 0; std::getline(programs, json); ++line) {
    auto saved = replay(json, line, **constants);
    nlohmann::json answer;
    if (saved.ok()) {
      answer["saved"] = nlohmann::json::array();
      for (const program::Saved& one : *saved) {
        answer["saved"].push_back(one.name);
        const at::Tensor& value = alive.emplace_back(one.value);
        const auto name = tensor::find_dtype(value.scalar_type())->file_name;
        results.push_back(
            {fmt::format("{}.{}", line, one.name),
             files::find_safe_dtype(name)->dtype,
             value.sizes().vec(),
             {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()}});
      }
    } else {
      const Status& status = saved.status();
      answer = {
          {"error", status.what}, {"code", code_info(status.code).name}, {"hint", status.hint}};
    }
    std::cout << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  const Status written = files::write_safetensors(argv[3], results);
  if (!written.ok()) throw std::runtime_error(written.message());
  return 0;
}

}  // namespace
}  // namespace pellucid

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "program_replay CONSTANTS.safetensors PROGRAMS.jsonl RESULTS.safetensors\n";
    return 2;
  }
  try {
    return pellucid::main_or_throw(argv);
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
