// The one place where the parts of the simulated machine hang together for this process, and who each thread's
// current device is.
#pragma once

#include <memory>
#include <vector>

#include "ascend_sim/acl/address_space.h"
#include "ascend_sim/acl/device.h"
#include "ascend_sim/acl/event.h"
#include "ascend_sim/acl/handles.h"
#include "ascend_sim/acl/memory.h"
#include "ascend_sim/acl/stream.h"

namespace onesided::sim {

// A device together with its default stream: what a thread makes current. Primary contexts live for ever.
struct Context {
  DeviceState& device;
  std::shared_ptr<Stream> default_stream;
  bool primary = false;
};

// Everything of this process. Internally synchronized; lives for ever, because threads call while statics are
// destroyed.
class Runtime {
 public:
  // Only once Config::active() is usable.
  Runtime();

  int device_count() const { return static_cast<int>(devices_.size()); }
  DeviceState& device(int logical) { return *devices_[logical]; }
  // kAclOk when `logical` is a device, else 107001 with words.
  AclError check_device(int logical) const;
  void refund(int physical, std::uint64_t nbytes);

  void* primary_context(int logical) const { return primary_contexts_[logical]; }
  HandleTable<Context, 0x51> contexts;
  HandleTable<Stream, 0x52> streams;
  HandleTable<Event, 0x53> events;
  AddressSpace addresses;
  MemoryTable memory;

 private:
  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::vector<void*> primary_contexts_;
};

Runtime& runtime();

// This thread's current context handle; null when none was set.
void* current_context_handle();
void set_current_context_handle(void* handle);
// The current context, falling back to device 0 where the program never initialised ACL (such programs expect that).
// Null, with 107002's words recorded, when there is none.
std::shared_ptr<Context> current_context(const char* function);
// The stream behind a handle; null handle: the current context's default stream. Null, with words recorded, when it
// does not exist.
std::shared_ptr<Stream> stream_of(void* handle, const char* function);

// aclInit has been called and not undone.
bool acl_initialized();

}  // namespace onesided::sim
