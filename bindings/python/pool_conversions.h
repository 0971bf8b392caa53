// Conversions of a pool's statistics, segments and callbacks, shared by the two Python modules with pools (host pools
// in _core, aligned NPU pools in the torch_npu extension).
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>

#include "interpreter_lock.h"
#include "onesided/memory/pool.h"

namespace onesided::python {

namespace nb = nanobind;

inline nb::dict to_dict(const SegmentInfo& segment) {
  nb::dict one;
  one["address"] = segment.address;
  one["nbytes"] = segment.nbytes;
  one["raw_address"] = segment.raw_address;
  one["raw_bytes"] = segment.raw_bytes;
  one["stream"] = reinterpret_cast<std::uintptr_t>(segment.stream.handle);
  return one;
}

// {"allocated_bytes.current": 4096, "allocated_bytes.peak": ..., "num_ooms": 0, ...}
inline nb::dict to_dict(const PoolStats& stats) {
  nb::dict all;
  const auto add = [&all](const std::string& name, const Counter& counter) {
    all[(name + ".current").c_str()] = counter.current;
    all[(name + ".peak").c_str()] = counter.peak;
    all[(name + ".allocated").c_str()] = counter.allocated;
    all[(name + ".freed").c_str()] = counter.freed;
  };
  add("allocation", stats.allocation);
  add("segment", stats.segment);
  add("active", stats.active);
  add("inactive_split", stats.inactive_split);
  add("allocated_bytes", stats.allocated_bytes);
  add("reserved_bytes", stats.reserved_bytes);
  add("active_bytes", stats.active_bytes);
  add("inactive_split_bytes", stats.inactive_split_bytes);
  add("requested_bytes", stats.requested_bytes);
  add("overhead_bytes", stats.overhead_bytes);
  all["num_alloc_retries"] = stats.num_alloc_retries;
  all["num_ooms"] = stats.num_ooms;
  all["num_device_alloc"] = stats.num_device_alloc;
  all["num_device_free"] = stats.num_device_free;
  return all;
}

// Two Python functions (or None) as a listener. It is called on any thread, so it takes the GIL itself. Exceptions are
// reported as unraisable, because the allocation in progress cannot handle them.
class PythonSegmentListener final : public SegmentListener {
 public:
  PythonSegmentListener(nb::object added, nb::object dropped)
      : added_(std::move(added)), dropped_(std::move(dropped)) {}
  ~PythonSegmentListener() override {
    if (!nb::is_alive()) {
      // The interpreter has ended, and its objects with it.
      (void)added_.release();
      (void)dropped_.release();
      return;
    }
    const Locked gil;
    added_.reset();
    dropped_.reset();
  }

  void on_segment_added(const SegmentInfo& segment) override { call(added_, segment); }
  void on_segment_dropped(const SegmentInfo& segment) override { call(dropped_, segment); }

 private:
  static void call(const nb::object& function, const SegmentInfo& segment) {
    if (!nb::is_alive()) return;
    const Locked gil;
    if (function.is_none()) return;
    try {
      function(to_dict(segment));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("onesided: a segment callback");
    }
  }

  nb::object added_;
  nb::object dropped_;
};

}  // namespace onesided::python
