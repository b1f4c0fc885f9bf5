#pragma once
// Callbacks of a job that are Python functions.
#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <memory>

#include "engine/engine.h"
#include "python_function.h"

namespace pellucid::python {

struct CancelHandle {
  engine::CancelFlag flag = std::make_shared<std::atomic<bool>>(false);
};

/// Calls function((group, row, token, text, ended)). What it raises ends the job and is kept.
inline std::function<void(const engine::TokenEvent&)> token_callback(
    PythonFunction function, std::shared_ptr<CallbackFailure> failure,
    engine::CancelFlag cancelled) {
  return [=](const engine::TokenEvent& event) {
    const nanobind::gil_scoped_acquire gil;
    try {
      function(nanobind::make_tuple(event.group, event.row, event.token,
                                    nanobind::str(event.text.data(), event.text.size()),
                                    event.ended.c_str()));
    } catch (const nanobind::python_error& raised) {
      failure->keep(raised);
      if (cancelled) cancelled->store(true);
    }
  };
}

}  // namespace pellucid::python
