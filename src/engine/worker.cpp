#include "engine/worker.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

namespace pellucid::engine {

Worker::Worker() : thread_([this] { loop(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  // The last reference may go on this very thread, at the end of a task.
  if (is_here()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Worker::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_all();
}

void Worker::loop() {
  at::init_num_threads();
  const c10::AutoGradMode no_grad(false);  // never InferenceMode: its tensors refuse later autograd
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace pellucid::engine
