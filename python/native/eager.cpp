// Eager traces: Python and the forward pass take turns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "callbacks.h"
#include "errors.h"
#include "loaded.h"
#include "tensor_bridge.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid::python {
namespace {

struct EagerHandle {
  std::shared_ptr<engine::EagerTrace> trace;
  std::shared_ptr<const model::Model> model;
  engine::CancelFlag cancelled;

  hook::SiteKey key(const std::string& site) const {
    return require(hook::resolve_site(model->catalog(), site)).key;
  }
};

EagerHandle open(const ModelHandle& self, const wire::Program& program) {
  engine::Job hooks;
  hooks.program = program;
  hooks.cancelled = std::make_shared<std::atomic<bool>>(false);
  const engine::CancelFlag cancelled = hooks.cancelled;
  return {require(self.loaded.engine->eager(std::move(hooks))), self.loaded.model, cancelled};
}

at::Tensor read(const EagerHandle& self, int step, const std::string& site) {
  return require(
      wait_for([trace = self.trace, step, key = self.key(site)] { return trace->read(step, key); },
               self.cancelled));
}

void write(const EagerHandle& self, int step, const std::string& site, at::Tensor value) {
  require(wait_for([trace = self.trace, step, key = self.key(site),
                    value] { return trace->write(step, key, value); },
                   self.cancelled));
}

at::Tensor part(const EagerHandle& self, const std::string& name, at::Tensor x) {
  return require(
      wait_for([trace = self.trace, name, x] { return trace->part(name, x); }, self.cancelled));
}

engine::GroupResult finish(const EagerHandle& self) {
  return require(wait_for([trace = self.trace] { return trace->finish(); }, self.cancelled));
}

}  // namespace

void bind_eager(nb::module_& module) {
  nb::class_<EagerHandle>(module, "EagerTrace")
      .def("read", &read, "step"_a, "site"_a)
      .def("write", &write, "step"_a, "site"_a, "value"_a)
      .def("part", &part, "name"_a, "x"_a)
      .def("finish", &finish);
  auto model = nb::borrow<nb::class_<ModelHandle>>(module.attr("Model"));
  model.def("eager", &open, "program"_a);
}

}  // namespace pellucid::python
