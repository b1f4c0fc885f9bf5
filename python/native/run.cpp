// Jobs: a program, its constants and its callbacks; and what comes of them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

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

/// A job as Python writes it down; run() makes the engine's from it.
struct JobHandle {
  wire::Program program;
  std::vector<at::Tensor> constants;
  PythonFunction call;
  PythonFunction on_token;
  engine::CancelFlag cancelled;
};

/// The same way that a program takes to a far machine: written, read back, checked. Programs with
/// callbacks stay here.
wire::Program through_the_wire(const wire::Program& program) {
  const bool local = std::any_of(program.nodes.begin(), program.nodes.end(), [](const auto& node) {
    return node.kind == wire::NodeKind::kCall;
  });
  if (local) return program;
  return require(wire::parse_program(require(wire::serialise(program))));
}

engine::Job to_job(const JobHandle& handle, std::shared_ptr<CallbackFailure> failure,
                   engine::CancelFlag cancelled) {
  engine::Job job;
  job.program = through_the_wire(handle.program);
  job.constants = handle.constants;
  job.cancelled = handle.cancelled ? handle.cancelled : std::move(cancelled);
  if (handle.call) {
    job.call = [call = handle.call, failure](const std::string& key,
                                             std::vector<at::Tensor> values) {
      const nb::gil_scoped_acquire gil;
      try {
        return nb::cast<at::Tensor>(call(key, values));
      } catch (const nb::python_error& raised) {
        failure->keep(raised);
        throw std::runtime_error("a Python function raised an exception");
      }
    };
  }
  if (handle.on_token) job.on_token = token_callback(handle.on_token, failure, job.cancelled);
  return job;
}

nb::object to_result(Result<engine::JobResult> result, const CallbackFailure& failure) {
  if (const nb::object raised = failure.exception(); !raised.is_none()) return raised;
  if (!result.ok()) return to_exception(result.status());
  return nb::cast(*std::move(result));
}

/// One result a job: a JobResult, or the exception that ended it.
nb::list run(const ModelHandle& self, const std::vector<JobHandle*>& handles) {
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::shared_ptr<CallbackFailure>> failures;
  auto jobs = std::make_shared<std::vector<engine::Job>>();
  for (const JobHandle* handle : handles) {
    failures.push_back(std::make_shared<CallbackFailure>());
    jobs->push_back(to_job(*handle, failures.back(), cancelled));
  }
  // A single job's own flag is the one that Ctrl-C sets.
  if (handles.size() == 1 && handles[0]->cancelled) cancelled = handles[0]->cancelled;
  auto results = wait_for(
      [engine = self.loaded.engine, jobs] {
        std::vector<Result<engine::JobResult>> done;
        if (jobs->size() == 1) {
          done.push_back(engine->run(std::move(jobs->front())));
        } else {
          done = engine->run_together(std::move(*jobs));
        }
        return done;
      },
      cancelled);
  nb::list list;
  for (size_t i = 0; i < results.size(); ++i) {
    list.append(to_result(std::move(results[i]), *failures[i]));
  }
  return list;
}

nb::list saved(const engine::JobResult& result) {
  nb::list list;
  for (const program::Saved& value : result.saved) {
    list.append(nb::make_tuple(value.name, value.value, value.missing, value.where));
  }
  return list;
}

}  // namespace

void bind_run(nb::module_& module) {
  nb::class_<CancelHandle>(module, "Cancel")
      .def(nb::init<>())
      .def("set", [](CancelHandle& self) { self.flag->store(true); })
      .def_prop_ro("is_set", [](const CancelHandle& self) { return self.flag->load(); });
  nb::class_<JobHandle>(module, "Job")
      .def(
          "__init__",
          [](JobHandle* self, wire::Program program, std::vector<at::Tensor> constants,
             nb::object call, nb::object on_token, nb::object cancel) {
            new (self)
                JobHandle{std::move(program), std::move(constants), PythonFunction(std::move(call)),
                          PythonFunction(std::move(on_token)),
                          cancel.is_none() ? nullptr : nb::cast<CancelHandle&>(cancel).flag};
          },
          "program"_a, "constants"_a, "call"_a.none(), "on_token"_a.none(),
          "cancel"_a.none() = nb::none());
  nb::class_<engine::RowResult>(module, "RowResult")
      .def_ro("tokens", &engine::RowResult::tokens)
      .def_ro("text", &engine::RowResult::text)
      .def_ro("ended", &engine::RowResult::ended);
  nb::class_<engine::GroupResult>(module, "GroupResult")
      .def_ro("rows", &engine::GroupResult::rows)
      .def_ro("steps_run", &engine::GroupResult::steps_run);
  nb::class_<engine::JobResult>(module, "JobResult")
      .def_prop_ro("saved", &saved)
      .def_ro("groups", &engine::JobResult::groups)
      .def_ro("warnings", &engine::JobResult::warnings)
      .def_ro("seconds", &engine::JobResult::seconds);
  auto model = nb::borrow<nb::class_<ModelHandle>>(module.attr("Model"));
  model.def("run", &run, "jobs"_a);
}

}  // namespace pellucid::python
