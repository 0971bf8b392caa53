// The user's own allocator library under an aligned pool (NPUPluggableAllocator). Each segment goes back to the
// function that made it, with the pointer and size it was made with, once.
#pragma once

#include <memory>

#include "onesided/memory/segment_source.h"
#include "queue_device.h"

namespace onesided::torch_npu {

// `device` must outlive the source; the upstream allocator is kept alive by it. A null pointer or an exception from the
// upstream's function is RESOURCE_EXHAUSTED.
std::unique_ptr<SegmentSource> make_upstream_source(
    QueueDevice& device, c10::DeviceIndex index, std::shared_ptr<c10_npu::NPUCachingAllocator::NPUAllocator> upstream);

}  // namespace onesided::torch_npu
