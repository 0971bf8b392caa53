// Decides whether a thread polls briefly before it blocks. Blocking and waking take several microseconds, more than a
// small request takes in total, so a thread that expects an event soon polls for it first. If the processors are busy,
// polling only delays the thread that produces the event; polling therefore stops after one unsuccessful poll.
#pragma once

#include <chrono>
#include <thread>

#include "onesided/base/clock.h"

namespace onesided {

// Decides from the results of earlier polls. Confined to one thread at a time.
class BriefLook {
 public:
  static constexpr auto kLength = std::chrono::microseconds(50);

  // Never true on a single processor.
  bool worthwhile() {
    static const bool several = std::thread::hardware_concurrency() > 1;
    if (!several) return false;
    if (pause_ == 0) return true;
    --pause_;
    return false;
  }
  void ended(bool found) { pause_ = found ? 0 : kPause; }

 private:
  static constexpr int kPause = 50;  // waits without polling after an unsuccessful poll
  int pause_ = 0;
};

}  // namespace onesided
