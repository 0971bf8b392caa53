// Waiting on an atomic word with a deadline, also across processes; std::atomic::wait has neither.
#pragma once

#include <atomic>
#include <cstdint>

#include "onesided/base/clock.h"

namespace onesided {

// Whether the word lies in memory that only this process maps, or in a page shared with others.
enum class FutexScope { kProcess, kShared };

// Sleeps while word == expected. False when the deadline passed first. May wake without cause.
bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline,
                FutexScope scope = FutexScope::kProcess);
// Wakes all who sleep on the word. Touches no memory, so the word may be gone already.
void futex_wake_all(const std::atomic<std::uint32_t>& word, FutexScope scope = FutexScope::kProcess);

}  // namespace onesided
