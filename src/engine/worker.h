#pragma once
// The engine's thread: runs tasks one after another. One thread for all tensor work, since libtorch
// gives every calling thread its own OpenMP pool and taking turns costs 3 to 5 times.
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

namespace pellucid::engine {

class Worker {
 public:
  Worker();
  ~Worker();  // finishes what is queued

  /// True on the worker's own thread: waiting there for another task would never end.
  bool is_here() const { return std::this_thread::get_id() == thread_.get_id(); }
  void post(std::function<void()> task);

  /// Runs `task` on the worker and waits; `while_waiting` (may be empty) is called every 50 ms.
  template <typename Task>
  auto call(Task task, const std::function<void()>& while_waiting = {}) {
    auto packaged = std::make_shared<std::packaged_task<decltype(task())()>>(std::move(task));
    auto future = packaged->get_future();
    post([packaged] { (*packaged)(); });
    while (future.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (while_waiting) while_waiting();
    }
    return future.get();
  }

 private:
  /// Shared with the thread, which may outlive the Worker by the end of its last task.
  struct State {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> tasks;
    bool stopping = false;
  };
  static void loop(State& state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace pellucid::engine
