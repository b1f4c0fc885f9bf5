#pragma once
// A Python callable that may be called from, and die on, any thread.
#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>

namespace pellucid::python {

/// True while Python code that the engine called runs on this thread: the engine waits for it, so
/// it must not wait for the engine.
inline thread_local bool inside_callback = false;

struct CallbackGuard {
  CallbackGuard() { inside_callback = true; }
  ~CallbackGuard() { inside_callback = false; }
};

class PythonFunction {
 public:
  /// None: an empty one. Call with the GIL held.
  explicit PythonFunction(nanobind::object function) {
    if (function.is_none()) return;
    function_ = std::shared_ptr<PyObject>(function.release().ptr(), [](PyObject* object) {
      if (Py_IsInitialized() == 0) return;
      nanobind::gil_scoped_acquire gil;
      Py_DECREF(object);
    });
  }

  explicit operator bool() const { return function_ != nullptr; }

  /// Call with the GIL held.
  template <typename... Args>
  nanobind::object operator()(Args&&... args) const {
    const CallbackGuard guard;
    return nanobind::borrow(function_.get())(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<PyObject> function_;
};

/// The Python exception that ended a callback, on its way around the engine.
class CallbackFailure {
 public:
  /// Call inside a catch block of nanobind::python_error, with the GIL held.
  void keep(const nanobind::python_error& raised) {
    const std::lock_guard lock(mutex_);
    if (exception_ == nullptr) {
      exception_ = std::shared_ptr<PyObject>(nanobind::borrow(raised.value()).release().ptr(),
                                             [](PyObject* object) {
                                               if (Py_IsInitialized() == 0) return;
                                               nanobind::gil_scoped_acquire gil;
                                               Py_DECREF(object);
                                             });
    }
  }
  /// None when nothing failed. Call with the GIL held.
  nanobind::object exception() const {
    const std::lock_guard lock(mutex_);
    return exception_ ? nanobind::borrow(exception_.get()) : nanobind::none();
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<PyObject> exception_;
};

}  // namespace pellucid::python
