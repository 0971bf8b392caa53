// Registration of segments of torch_npu's native allocator. The allocator frees segments without notice to the code
// that registered them. Its trace trackers are called before the memory is freed, but under the allocator's lock, where
// no Python may run (a thread that holds the GIL may be waiting for that lock). Native segments are therefore
// registered with a C++ engine, which needs neither.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "interface.h"
#include "onesided/node/open_engine.h"

namespace onesided::torch_npu {

// Native segments registered with one engine, each once, when the first block in it is added. Internally synchronized.
class NativeRegistration {
 public:
  using NPUAllocator = c10_npu::NPUCachingAllocator::NPUAllocator;

  // `native` is never destroyed.
  static std::shared_ptr<NativeRegistration> create(NPUAllocator& native, std::shared_ptr<Engine> engine);
  ~NativeRegistration() { close(); }
  NativeRegistration(const NativeRegistration&) = delete;
  NativeRegistration& operator=(const NativeRegistration&) = delete;

  struct Range {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
  };
  // Registers the segment of the block that starts at `block`, if it is not registered yet. The caller keeps the block
  // alive during the call. UNSUPPORTED: a growable segment (its end moves). CLOSED. Otherwise the engine's error.
  // Throws c10::Error: no block of the native allocator starts there.
  Result<Range> add(void* block);
  // Deregisters everything; later calls of add() get CLOSED.
  void close();

  // To be called before the native allocator frees the range. When this returns, no registration overlaps it, except if
  // a transfer was still moving bytes there after 10 s, which failures() reports.
  void drop(std::uint64_t begin, std::uint64_t end);

  std::uint64_t segments_registered() const;  // current
  std::uint64_t registrations_made() const;   // in total
  std::vector<Error> failures() const;        // segments that could not be deregistered before they were freed

 private:
  struct Entry {
    std::uint64_t nbytes = 0;
    MemHandle handle;
    bool leaving = false;  // one thread is deregistering it
  };
  NativeRegistration(NPUAllocator& native, std::shared_ptr<Engine> engine)
      : native_(native), engine_(std::move(engine)) {}
  bool any_within(std::uint64_t begin, std::uint64_t end) const;

  NPUAllocator& native_;
  const std::shared_ptr<Engine> engine_;

  mutable std::mutex mutex_;  // guards the members below; never held while the engine or the allocator is called
  std::condition_variable left_;
  std::map<std::uint64_t, Entry> entries_;  // by segment address
  std::uint64_t made_ = 0;
  std::vector<Error> failures_;
  bool closed_ = false;
};

}  // namespace onesided::torch_npu
