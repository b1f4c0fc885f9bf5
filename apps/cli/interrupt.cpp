#include <unistd.h>
#include <csignal>

#include <atomic>

#include "apps/cli/common.h"
#include "base/check.h"

namespace pellucid::cli {
namespace {

std::atomic<std::atomic<bool>*> guarded{nullptr};
std::atomic<bool> second_ends{true};
static_assert(std::atomic<std::atomic<bool>*>::is_always_lock_free, "used in a signal handler");

extern "C" void on_interrupt(int) {
  std::atomic<bool>* flag = guarded.load();
  if (flag == nullptr || (flag->exchange(true) && second_ends.load())) _exit(kInterruptedExit);
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read of the terminal returns, so that chat can go on
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::InterruptGuard(SecondInterrupt second)
    : flag_(std::make_shared<std::atomic<bool>>(false)) {
  second_ends.store(second == SecondInterrupt::kEndsProcess);
  PELLUCID_CHECK(guarded.load() == nullptr, "two interrupt guards at a time");
  guarded.store(flag_.get());
}

InterruptGuard::~InterruptGuard() { guarded.store(nullptr); }

void InterruptGuard::reset() { flag_->store(false); }

}  // namespace pellucid::cli
