// A segment source over the user's own allocator library under an aligned pool (NPUPluggableAllocator). Each segment is
// returned to the library's free function exactly once, with the pointer and size of its allocation.
#pragma once

#include <memory>

#include "onesided/memory/segment_source.h"
#include "queue_device.h"

namespace onesided::torch_npu {

// `device` must outlive the source; the source keeps the upstream allocator alive. A null pointer or an exception from
// the upstream's function gives RESOURCE_EXHAUSTED.
std::unique_ptr<SegmentSource> make_upstream_source(
    QueueDevice& device, c10::DeviceIndex index, std::shared_ptr<c10_npu::NPUCachingAllocator::NPUAllocator> upstream);

}  // namespace onesided::torch_npu
