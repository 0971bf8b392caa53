#include "ascend_sim/acl/fork.h"

#include <pthread.h>

#include <atomic>

namespace onesided::sim {
namespace {

std::atomic<bool> used{false};
std::atomic<bool> forked{false};

void in_child() { forked.store(used.load(std::memory_order_relaxed), std::memory_order_relaxed); }

}  // namespace

void mark_used() {
  if (used.load(std::memory_order_relaxed)) return;
  if (!used.exchange(true)) ::pthread_atfork(nullptr, nullptr, in_child);
}

bool forked_after_use() { return forked.load(std::memory_order_relaxed); }

}  // namespace onesided::sim
