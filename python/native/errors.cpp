#include "errors.h"

#include <exception>

#include "base/check.h"

namespace nb = nanobind;

namespace pellucid::python {

nb::object to_exception(const Status& status) {
  const nb::object make = nb::module_::import_("pellucid._errors").attr("from_status");
  return make(std::string(code_info(status.code).name).c_str(), status.what.c_str(),
              status.hint.c_str(), status.where.c_str());
}

void bind_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const StatusError& failure) {
      const nb::object exception = to_exception(failure.status);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    }
  });
}

}  // namespace pellucid::python
