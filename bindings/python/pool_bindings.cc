// Host memory for Python programs: single exportable buffers (host_pool) and a growing pool of them (HostPool).
// Each view keeps the memory alive, so close() never frees it while an array or a tensor uses it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "errors.h"
#include "interpreter_lock.h"
#include "onesided/base/log.h"
#include "onesided/device/host/factory.h"
#include "onesided/node/host_pool.h"
#include "pool_conversions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace onesided::python {
namespace {

// The owner of memory whose address Python has; the memory is freed with the last reference.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  virtual void* address() const = 0;
  virtual std::uint64_t nbytes() const = 0;
};

class SingleBuffer final : public HostMemory {
 public:
  explicit SingleBuffer(HostBuffer buffer) : buffer_(std::move(buffer)) {}
  void* address() const override { return buffer_.address(); }
  std::uint64_t nbytes() const override { return buffer_.nbytes(); }

 private:
  HostBuffer buffer_;
};

class PoolBlock final : public HostMemory {
 public:
  PoolBlock(std::shared_ptr<Pool> pool, void* address, std::uint64_t nbytes)
      : pool_(std::move(pool)), address_(address), nbytes_(nbytes) {}
  ~PoolBlock() override {
    if (const auto freed = pool_->free(address_); !freed.ok()) log_line(LogLevel::kError, freed.error().to_string());
  }
  void* address() const override { return address_; }
  std::uint64_t nbytes() const override { return nbytes_; }

 private:
  const std::shared_ptr<Pool> pool_;
  void* const address_;
  const std::uint64_t nbytes_;
};

using HostMemoryPtr = std::shared_ptr<HostMemory>;
using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

// onesided.HostMemory. Protected by the GIL.
class PythonHostMemory {
 public:
  explicit PythonHostMemory(HostMemoryPtr memory) : memory_(std::move(memory)) {}

  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(open().address()); }
  std::uint64_t nbytes() const { return open().nbytes(); }
  Bytes numpy() const {
    auto* kept = new HostMemoryPtr(memory_of());
    const nb::capsule owner(kept, [](void* held) noexcept { delete static_cast<HostMemoryPtr*>(held); });
    return Bytes((*kept)->address(), {static_cast<std::size_t>((*kept)->nbytes())}, owner);
  }
  void close() { memory_.reset(); }

 private:
  const HostMemory& open() const { return *memory_of(); }
  const HostMemoryPtr& memory_of() const {
    if (!memory_) throw nb::value_error("this host memory was closed");
    return memory_;
  }

  HostMemoryPtr memory_;
};

PythonHostMemory host_pool(std::uint64_t nbytes, std::uint64_t alignment) {
  return PythonHostMemory(std::make_shared<SingleBuffer>(unwrap(HostBuffer::create(nbytes, alignment))));
}

std::shared_ptr<Pool> make_pool(std::optional<std::uint64_t> alignment, std::uint64_t max_bytes,
                                std::uint64_t preallocate_bytes, std::uint64_t segment_bytes,
                                std::uint64_t segment_bytes_max, double gc_threshold) {
  PoolOptions options;
  // Hosts of Ascend cards often have pages of 64 KiB.
  options.alignment = alignment.value_or(std::max<std::uint64_t>(4 * kKiB, shared_host_device().page_bytes()));
  options.max_bytes = max_bytes;
  options.preallocate_bytes = preallocate_bytes;
  options.segment_bytes = segment_bytes;
  options.segment_bytes_max = segment_bytes_max;
  options.gc_threshold = gc_threshold;
  auto made = [&] {
    const Unlocked unlocked;
    return create_host_pool(options);
  }();
  if (!made.ok() && made.status() == Status::kParamInvalid) throw nb::value_error(made.error().text().c_str());
  return unwrap(std::move(made));
}

PythonHostMemory allocate(const std::shared_ptr<Pool>& pool, std::uint64_t nbytes) {
  if (nbytes == 0) throw nb::value_error("host_pool: nbytes must be greater than 0");
  const Unlocked unlocked;
  const Allocation block = unwrap(pool->allocate(nbytes));
  return PythonHostMemory(std::make_shared<PoolBlock>(pool, block.address, nbytes));
}

void bind_memory(nb::module_& module) {
  nb::class_<PythonHostMemory>(module, "HostMemory",
                               "Host memory that other processes can map. It is freed when this object is closed or "
                               "deleted AND no array, memoryview or tensor uses it.")
      .def_prop_ro("addr", &PythonHostMemory::address, "Address of the first byte.")
      .def_prop_ro("nbytes", &PythonHostMemory::nbytes)
      .def("numpy", &PythonHostMemory::numpy, "The bytes as a writable uint8 array, without a copy.")
      .def(
          "memoryview",
          [](const PythonHostMemory& memory) {
            nb::object view = nb::module_::import_("builtins").attr("memoryview");
            return view(memory.numpy());
          },
          "The bytes as a writable memoryview, without a copy.")
      .def("close", &PythonHostMemory::close, "Releases the memory, which existing views keep alive. Idempotent.")
      .def("__len__", &PythonHostMemory::nbytes)
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](PythonHostMemory& memory, nb::args) { memory.close(); });
  module.def("host_pool", &host_pool, "nbytes"_a, "alignment"_a = 2 * kMiB, nb::call_guard<Unlocked>(),
             "One range of zeroed, exportable (memfd) host memory, e.g. for buffers that peers read and write.");
}

}  // namespace

void bind_pool(nb::module_& module) {
  bind_memory(module);
  const PoolOptions defaults;
  nb::class_<Pool>(
      module, "HostPool",
      "A growing pool of exportable host memory. Its pre-faulted segments are reused, announced to subscribers, and "
      "freed by trim(). alignment: of every buffer, in bytes; by default the page of the host. "
      "Thread-safe.")
      .def(nb::new_(&make_pool), nb::kw_only(), "alignment"_a = nb::none(), "max_bytes"_a = 0,
           "preallocate_bytes"_a = 0, "segment_bytes"_a = defaults.segment_bytes,
           "segment_bytes_max"_a = defaults.segment_bytes_max, "gc_threshold"_a = 0.0)
      .def("allocate", &allocate, "nbytes"_a,
           "Aligned HostMemory of nbytes; its block is reused when its last view is deleted.")
      .def(
          "trim", [](Pool& pool) { return pool.trim(); }, nb::call_guard<Unlocked>(),
          "Frees idle segments; returns their bytes.")
      .def("stats", [](Pool& pool) { return to_dict(pool.stats()); })
      .def("segments",
           [](Pool& pool) {
             nb::list all;
             for (const SegmentSnapshot& segment : pool.snapshot()) all.append(to_dict(segment.info));
             return all;
           })
      .def(
          "subscribe",
          [](Pool& pool, nb::object added, nb::object dropped) {
            auto listener = std::make_shared<PythonSegmentListener>(std::move(added), std::move(dropped));
            const Unlocked unlocked;
            return pool.subscribe(std::move(listener));
          },
          "on_segment_added"_a.none(), "on_segment_dropped"_a.none(),
          "Calls on_segment_added(segment) for each existing and future segment, before its first block is handed "
          "out, "
          "and on_segment_dropped(segment) before its memory is freed. Returns a number for unsubscribe().")
      .def("unsubscribe", &Pool::unsubscribe, "subscription"_a, nb::call_guard<Unlocked>());
}

}  // namespace onesided::python
