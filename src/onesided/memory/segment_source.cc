#include "onesided/memory/segment_source.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace onesided {
namespace {

class DeviceSource : public SegmentSource {
 public:
  explicit DeviceSource(Device& device) : device_(device) {}

  std::string_view name() const override { return device_.name(); }
  std::uint64_t granule_bytes() const override {
    return std::max(device_.page_bytes(), device_.registration_alignment());
  }
  std::uint64_t natural_alignment() const override { return granule_bytes(); }
  bool honours_alignment() const override { return device_.mem_type() == MemType::kHost; }
  // Nothing reads past the end of host memory, and an NPU's device keeps the bytes that its kernels read
  // (AclDevice::allocate).
  std::uint64_t guard_bytes() const override { return 0; }
  Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment, Stream) override {
    return device_.allocate(nbytes, alignment);
  }
  Result<void> free(void* base, std::uint64_t nbytes, Stream) override { return device_.free(base, nbytes); }

 private:
  Device& device_;
};

class PrefaultedSource final : public DeviceSource {
 public:
  explicit PrefaultedSource(Device& device) : DeviceSource(device), device_(device) {}

  Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment, Stream stream) override {
    // All pages are touched immediately; a page that is not available would raise a signal.
    ONESIDED_TRY_ASSIGN(now, device_.memory_info());
    if (nbytes > now.free_bytes) {
      return Error{
          Status::kResourceExhausted,
          fmt::format("{} bytes requested, {} bytes of this machine's memory are available", nbytes, now.free_bytes)};
    }
    ONESIDED_TRY_ASSIGN(base, DeviceSource::allocate(nbytes, alignment, stream));
#ifdef MADV_POPULATE_WRITE
    if (::madvise(base, nbytes, MADV_POPULATE_WRITE) == 0) return base;
    if (errno != EINVAL) {
      // Touching pages that the kernel cannot provide would raise a signal.
      const Error error{Status::kResourceExhausted,
                        fmt::format("no pages for {} bytes of host memory: {}", nbytes, std::strerror(errno))};
      if (const auto returned = DeviceSource::free(base, nbytes, stream); !returned.ok()) return returned.error();
      return error;
    }
#endif
    // On an older kernel one byte of each page is touched. No other thread uses the memory yet.
    for (std::uint64_t offset = 0; offset < nbytes; offset += 4096) static_cast<volatile char*>(base)[offset] = 0;
    return base;
  }

 private:
  Device& device_;
};

}  // namespace

std::unique_ptr<SegmentSource> make_device_source(Device& device) { return std::make_unique<DeviceSource>(device); }

std::unique_ptr<SegmentSource> make_prefaulted_source(Device& device) {
  ONESIDED_CHECK(device.host_accessible(), "only host memory can be pre-faulted, not {}", device.name());
  return std::make_unique<PrefaultedSource>(device);
}

}  // namespace onesided
