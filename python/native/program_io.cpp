// The written forms of programs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "wire/constant_hash.h"
#include "wire/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid::python {

void bind_program_io(nb::module_& module) {
  module.def(
      "constant_hash",
      [](const std::string& dtype, const std::vector<int64_t>& shape, nb::bytes data) {
        return wire::constant_hash(dtype, shape,
                                   {static_cast<const std::byte*>(data.data()), data.size()});
      },
      "dtype"_a, "shape"_a, "data"_a);
  auto program = nb::borrow<nb::class_<wire::Program>>(module.attr("Program"));
  program
      .def("serialise",
           [](const wire::Program& self) {
             const std::string bytes = require(wire::serialise(self));
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def_static("parse",
                  [](nb::bytes data) {
                    return require(
                        wire::parse_program({static_cast<const char*>(data.data()), data.size()}));
                  })
      .def("to_json", [](const wire::Program& self) { return require(wire::to_json(self)); })
      .def_static("from_json",
                  [](const std::string& json) { return require(wire::program_from_json(json)); })
      .def("set_hashes",
           [](wire::Program& self, const std::vector<std::string>& hashes) {
             if (hashes.size() != self.constants.size()) {
               throw nb::value_error("one hash for each constant");
             }
             for (size_t i = 0; i < hashes.size(); ++i) self.constants[i].hash = hashes[i];
           })
      .def_prop_ro("hashes", [](const wire::Program& self) {
        std::vector<std::string> hashes;
        for (const wire::Constant& constant : self.constants) hashes.push_back(constant.hash);
        return hashes;
      });
}

}  // namespace pellucid::python
