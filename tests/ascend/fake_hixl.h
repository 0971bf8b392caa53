// The test and the scripted vendor library agree here on what it shall do and what it has seen.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

// What the fake engine does next, and what was asked of it. One per process; found as symbol "fake_hixl_script".
struct FakeHixlScript {
  std::atomic<int> polls_to_complete{1};  // how often a request answers WAITING; < 0: for ever
  std::atomic<int> final_status{1};       // the vendor's TransferStatus in the end
  std::atomic<std::uint32_t> connect_code{0};
  std::atomic<std::uint32_t> register_code{0};
  std::atomic<std::uint32_t> transfer_code{0};
  std::atomic<bool> move_bytes{true};

  std::mutex mutex;
  std::condition_variable called;
  std::vector<std::string> calls;  // "connect 1.2.3.4:5", "disconnect ...", "transfer 3", ...

  void note(std::string call) {
    const std::lock_guard lock(mutex);
    calls.push_back(std::move(call));
    called.notify_all();
  }
  // Blocks until `call` has been noted `times` times since the last take_calls().
  void wait_for(const std::string& call, std::ptrdiff_t times) {
    std::unique_lock lock(mutex);
    called.wait(lock, [&] { return std::count(calls.begin(), calls.end(), call) >= times; });
  }
  std::vector<std::string> take_calls() {
    const std::lock_guard lock(mutex);
    return std::move(calls);
  }
};
