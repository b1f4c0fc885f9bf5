#pragma once
// Waiting for the engine from Python: without the GIL, and with an ear for Ctrl-C.
#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "engine/engine.h"
#include "errors.h"
#include "python_function.h"

namespace pellucid::python {

inline constexpr std::chrono::milliseconds kPoll{50};
inline constexpr std::chrono::milliseconds kPatience{80};  // for work that has been told to stop

/// Runs `work` on a thread of its own and waits with the GIL released, looking for signals every
/// 50 ms. On one: sets `cancelled`, waits a moment, leaves the thread to its end and raises what
/// the signal's handler raised. So `work` owns all that it uses, and uses no Python object without
/// taking the GIL. Call with the GIL held.
template <typename Work>
auto wait_for(Work work, engine::CancelFlag cancelled) {
  using Value = decltype(work());
  if (inside_callback) {
    throw StatusError{error(Code::kInvalidArgument, "compute it in the block of the trace",
                            "the model cannot be used inside a function that it calls itself")};
  }
  auto task = std::make_shared<std::packaged_task<Value()>>(std::move(work));
  std::future<Value> future = task->get_future();
  std::thread([task]() mutable {
    (*task)();
    task.reset();
  }).detach();
  task.reset();
  while (true) {
    std::future_status status;
    {
      nanobind::gil_scoped_release released;
      status = future.wait_for(kPoll);
    }
    if (status == std::future_status::ready) return future.get();
    if (PyErr_CheckSignals() == 0) continue;
    if (cancelled) cancelled->store(true);
    nanobind::python_error interrupt;  // takes the error that is set
    {
      nanobind::gil_scoped_release released;
      future.wait_for(kPatience);
    }
    throw interrupt;
  }
}

}  // namespace pellucid::python
