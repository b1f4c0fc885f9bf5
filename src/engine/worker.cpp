#include "engine/worker.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

namespace pellucid::engine {

Worker::Worker() : thread_([state = state_] { loop(*state); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  // The last reference may go on this very thread, at the end of a task.
  if (is_here()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Worker::post(std::function<void()> task) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
  }
  state_->wake.notify_all();
}

void Worker::loop(State& state) {
  at::init_num_threads();
  const c10::AutoGradMode no_grad(false);  // never InferenceMode: its tensors refuse later autograd
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(state.mutex);
      state.wake.wait(lock, [&] { return state.stopping || !state.tasks.empty(); });
      if (state.tasks.empty()) return;
      task = std::move(state.tasks.front());
      state.tasks.pop_front();
    }
    task();
  }
}

}  // namespace pellucid::engine
