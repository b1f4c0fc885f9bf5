#pragma once
// One function a file: what it adds to pellucid._native.
#include <nanobind/nanobind.h>

namespace pellucid::python {

void bind_program(nanobind::module_& module);
void bind_program_io(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_run(nanobind::module_& module);
void bind_eager(nanobind::module_& module);

}  // namespace pellucid::python
