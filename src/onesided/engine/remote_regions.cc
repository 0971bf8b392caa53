#include "onesided/engine/remote_regions.h"

#include <fmt/format.h>

namespace onesided {

Result<RemoteRegions> RemoteRegions::decode(std::span<const std::uint8_t> blob) {
  ONESIDED_TRY_ASSIGN(description, decode_description(blob));
  return RemoteRegions(std::move(description));
}

Result<void> RemoteRegions::bind(const Pair& pair, BoundItems& bound) const {
  if (pair.item >= description_.items.size())
    return Error(Status::kParamInvalid,
                 fmt::format("item {} of {} described ranges", pair.item, description_.items.size()));
  const auto& item = description_.items[pair.item];
  if (pair.nbytes == 0 || !range_within(pair.offset, pair.nbytes, 0, item.nbytes))
    return Error(Status::kParamInvalid,
                 fmt::format("offset {} + {} bytes does not lie in described range {} of {} bytes", pair.offset,
                             pair.nbytes, pair.item, item.nbytes));
  bound.instance = description_.instance;
  bound.items.push_back({pair.local, item.address + pair.offset, pair.nbytes});
  bound.keys.push_back(item.key);
  return {};
}

}  // namespace onesided
