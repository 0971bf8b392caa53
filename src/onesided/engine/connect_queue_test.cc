// Tests of ConnectQueue. A refused operation must have no effect.
#include "onesided/engine/connect_queue.h"

#include <gtest/gtest.h>

#include <string>

#include "onesided/base/mutex.h"

namespace onesided {
namespace {

TEST(ConnectQueue, ARefusedOperationHasNoStatus) {
  Mutex mutex;
  CondVar freed;
  bool free = false;
  ConnectQueue queue;
  const auto blocks = [&]() -> Result<void> {
    MutexLock lock(mutex);
    while (!free) freed.wait(lock);
    return {};
  };
  for (std::size_t i = 0; i < ConnectQueue::kMaxRemotes; ++i)
    ASSERT_TRUE(queue.add("remote " + std::to_string(i), blocks).ok());
  EXPECT_EQ(queue.add("one more", blocks).status(), Status::kResourceExhausted);
  EXPECT_EQ(queue.outcome("one more").status(), Status::kNotFound);
  EXPECT_EQ(queue.outcome("remote 0")->status, TransferStatus::kWaiting);
  for (std::size_t i = 0; i + 1 < ConnectQueue::kMaxQueued; ++i) ASSERT_TRUE(queue.add("remote 0", blocks).ok());
  // The first may have been removed from the queue already.
  while (queue.add("remote 0", blocks).ok()) {
  }
  EXPECT_EQ(queue.outcome("remote 0")->status, TransferStatus::kWaiting);
  {
    MutexLock lock(mutex);
    free = true;
    freed.notify_all();
  }
  queue.close();
  EXPECT_EQ(queue.outcome("remote 0")->status, TransferStatus::kCompleted);
  EXPECT_EQ(queue.outcome("one more").status(), Status::kNotFound);
}

}  // namespace
}  // namespace onesided
