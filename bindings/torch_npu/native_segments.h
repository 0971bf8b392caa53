// Torch_npu's own allocator gives segments back without a word to whoever registered them. Its trace trackers do
// hear of it before the memory goes, but under the allocator's lock, where no Python may run (a thread that holds the
// interpreter lock may be waiting for that very lock). So native segments are registered with a C++ engine, which needs
// neither.
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

  // `native` lives for ever.
  static std::shared_ptr<NativeRegistration> create(NPUAllocator& native, std::shared_ptr<Engine> engine);
  ~NativeRegistration() { close(); }
  NativeRegistration(const NativeRegistration&) = delete;
  NativeRegistration& operator=(const NativeRegistration&) = delete;

  struct Range {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
  };
  // Registers the segment of the block that starts at `block`, unless it is. The caller keeps the block alive
  // meanwhile. UNSUPPORTED: a growable segment (its end moves). CLOSED. Otherwise the engine's error. Throws
  // c10::Error: no block of the native allocator starts there.
  Result<Range> add(void* block);
  // Deregisters everything; nothing can be added any more.
  void close();

  // The native allocator is about to give the range back: when this returns no registration touches it, unless a
  // transfer was still moving bytes there after 10 s, which failures() tells.
  void drop(std::uint64_t begin, std::uint64_t end);

  std::uint64_t segments_registered() const;  // now
  std::uint64_t registrations_made() const;   // ever
  std::vector<Error> failures() const;        // what could not be deregistered before it went

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

  mutable std::mutex mutex_;  // what follows; never held while the engine or the allocator is called
  std::condition_variable left_;
  std::map<std::uint64_t, Entry> entries_;  // by segment address
  std::uint64_t made_ = 0;
  std::vector<Error> failures_;
  bool closed_ = false;
};

}  // namespace onesided::torch_npu
