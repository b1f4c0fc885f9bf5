// The extension pellucid._native: what the Python package stands on. Users import pellucid.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "errors.h"
#include "tensor_bridge.h"

NB_MODULE(_native, module) {
  using namespace pellucid::python;
  bind_errors();
  module.def("materialise", &materialise, nanobind::arg("placeholder"), nanobind::arg("result"));
  module.def("storage_id", &storage_id, nanobind::arg("tensor"));
  bind_program(module);
  bind_tokenizer(module);
  bind_model(module);
  bind_run(module);
  bind_eager(module);
}
