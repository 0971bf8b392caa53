// Waits on an atomic word with a deadline, also across processes; std::atomic::wait supports neither.
#pragma once

#include <atomic>
#include <cstdint>

#include "onesided/base/clock.h"

namespace onesided {

// Tells whether the word lies in memory that only this process maps, or in a page shared with other processes.
enum class FutexScope { kProcess, kShared };

// Blocks while word == expected. False if the deadline passed first. May wake spuriously.
bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline,
                FutexScope scope = FutexScope::kProcess);
// Wakes all threads that are blocked on the word. Does not access the word, which may be freed already.
void futex_wake_all(const std::atomic<std::uint32_t>& word, FutexScope scope = FutexScope::kProcess);

}  // namespace onesided
