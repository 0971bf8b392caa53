// Being put to sleep and woken takes several microseconds, more than a small request takes in all. A thread that
// has reason to expect something at once looks for it a moment before it sleeps. Where the processors are busy with
// other work such looks only keep whoever is waited for from running: they are given up as soon as one was in vain.
#pragma once

#include <chrono>
#include <thread>

#include "onesided/base/clock.h"

namespace onesided {

// Whether to look, learnt from the looks before. Confined to one thread at a time.
class BriefLook {
 public:
  static constexpr auto kLength = std::chrono::microseconds(50);

  // Never on a single processor.
  bool worthwhile() {
    static const bool several = std::thread::hardware_concurrency() > 1;
    if (!several) return false;
    if (pause_ == 0) return true;
    --pause_;
    return false;
  }
  void ended(bool found) { pause_ = found ? 0 : kPause; }

 private:
  static constexpr int kPause = 50;  // occasions that are let pass after a look in vain
  int pause_ = 0;
};

}  // namespace onesided
