#include "upstream_source.h"

#include <fmt/format.h>

#include <utility>

#include "onesided/base/align.h"

namespace onesided::torch_npu {
namespace {

using c10_npu::NPUCachingAllocator::NPUAllocator;

// The bytes that torch_npu itself keeps behind each block for kernels that read past the end.
constexpr std::uint64_t kOverReadBytes = 32;

class UpstreamSource final : public SegmentSource {
 public:
  UpstreamSource(QueueDevice& device, c10::DeviceIndex index, std::shared_ptr<NPUAllocator> upstream)
      : device_(device), index_(index), upstream_(std::move(upstream)) {}

  std::string_view name() const override { return "the pool's own allocator"; }
  std::uint64_t granule_bytes() const override { return device_.registration_alignment(); }
  // The pool checks the library's memory; most libraries pass memory of aclrtMalloc.
  std::uint64_t natural_alignment() const override { return device_.registration_alignment(); }
  bool honours_alignment() const override { return false; }
  // A library that maps pages itself keeps no bytes behind them, and the driver faults on unmapped addresses.
  std::uint64_t guard_bytes() const override { return kOverReadBytes; }

  Result<void*> allocate(std::uint64_t nbytes, std::uint64_t, Stream stream) override {
    ONESIDED_TRY(device_.may_allocate(nbytes));
    try {
      const c10_npu::NPUGuard guard(index_);
      void* base = upstream_->raw_alloc_with_stream(nbytes, stream.handle);
      if (base) return base;
      return Error{Status::kResourceExhausted,
                   fmt::format("the pool's own allocator returned no memory for {} bytes", nbytes)};
    } catch (const std::exception& error) {
      return Error{Status::kResourceExhausted, fmt::format("the pool's own allocator failed: {}", error.what())};
    }
  }

  Result<void> free(void* base, std::uint64_t nbytes, Stream) override {
    try {
      if (!runtime_alive()) {
        upstream_->raw_delete(base);
        return {};
      }
      const c10_npu::NPUGuard guard(index_);
      upstream_->raw_delete(base);
      return {};
    } catch (const std::exception& error) {
      return Error{Status::kFailed, fmt::format("the pool's own allocator could not free {} ({} bytes): {}", base,
                                                nbytes, error.what())};
    }
  }

 private:
  QueueDevice& device_;
  const c10::DeviceIndex index_;
  const std::shared_ptr<NPUAllocator> upstream_;
};

}  // namespace

std::unique_ptr<SegmentSource> make_upstream_source(QueueDevice& device, c10::DeviceIndex index,
                                                    std::shared_ptr<NPUAllocator> upstream) {
  return std::make_unique<UpstreamSource>(device, index, std::move(upstream));
}

}  // namespace onesided::torch_npu
