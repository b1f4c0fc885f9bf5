#pragma once
// Status -> pellucid.Error. Python raises what C++ returned: code, what, hint, where.
#include <nanobind/nanobind.h>

#include "base/status.h"

namespace pellucid::python {

/// A C++ exception that becomes pellucid.Error (or its subclass for the code) in Python.
struct StatusError {
  Status status;
};

inline void require(Status status) {
  if (!status.ok()) throw StatusError{std::move(status)};
}

template <typename T>
T require(Result<T> result) {
  if (!result.ok()) throw StatusError{std::move(result).status()};
  return *std::move(result);
}

/// The exception object for `status`, made by pellucid._errors.from_status. Needs the GIL.
nanobind::object to_exception(const Status& status);

void bind_errors();

}  // namespace pellucid::python
