// Registration has two owners with different rules: the vendor's table (what a program may do, and when it hears
// of a refusal) and our engine's registry (what can really be moved). They are kept in step here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "driver.h"
#include "memory_table.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/engine.h"

namespace onesided::hixl_abi {

// Internally synchronized. `engine` outlives it.
class RegisteredMemory {
 public:
  RegisteredMemory(Engine& engine, Driver driver) : engine_(engine), driver_(driver) {}

  // Rules: MemoryTable::add. Device memory that our engine refuses as misaligned is accepted here and refused at
  // connect. Anything else that our engine refuses is refused with its error.
  Result<MemoryTable::Handle> add(const Segment& segment);
  // An unknown handle is not an error. BUSY: a running peer still moves bytes; the memory accepts no new transfers, but
  // must not be freed yet.
  Result<void> remove(MemoryTable::Handle handle);
  // Asks the driver about all device memory registered and not yet asked about. FAILED, with the driver's answer.
  Result<void> check_shareable();
  std::shared_ptr<const SegmentSet> snapshot() const;

 private:
  Engine& engine_;
  const Driver driver_;
  MemoryTable table_;
  Mutex order_;  // held over changes of both registries, so that they happen in one order
  std::map<MemoryTable::Handle, MemHandle> registered_ ONESIDED_GUARDED_BY(order_);
  std::set<Segment> shareable_ ONESIDED_GUARDED_BY(order_);  // the driver has agreed
};

}  // namespace onesided::hixl_abi
