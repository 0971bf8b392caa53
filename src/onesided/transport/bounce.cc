#include "onesided/transport/bounce.h"

#include <algorithm>
#include <cstring>

#include "onesided/transport/transport.h"

namespace onesided {

void* thread_bounce_buffer() {
  static thread_local std::unique_ptr<char[]> buffer;
  if (!buffer) buffer = std::make_unique_for_overwrite<char[]>(kPieceBytes);
  return buffer.get();
}

Result<void> copy_between(Device* to_device, std::uint64_t to, Device* from_device, std::uint64_t from,
                          std::uint64_t nbytes) {
  auto* target = reinterpret_cast<void*>(to);
  const auto* source = reinterpret_cast<const void*>(from);
  if (!to_device && !from_device) {
    std::memmove(target, source, nbytes);
    return {};
  }
  if (!to_device) return from_device->copy_to_host(target, source, nbytes);
  if (!from_device) return to_device->copy_from_host(target, source, nbytes);
  void* buffer = thread_bounce_buffer();
  for (std::uint64_t done = 0; done < nbytes;) {
    const std::uint64_t step = std::min(nbytes - done, kPieceBytes);
    ONESIDED_TRY(from_device->copy_to_host(buffer, reinterpret_cast<const void*>(from + done), step));
    ONESIDED_TRY(to_device->copy_from_host(reinterpret_cast<void*>(to + done), buffer, step));
    done += step;
  }
  return {};
}

}  // namespace onesided
