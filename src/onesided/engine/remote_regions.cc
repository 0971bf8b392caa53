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
  const auto span = checked_span(pair.nbytes, pair.rows.row_bytes, pair.rows.remote_pitch);
  if (!span)
    return Error(
        Status::kParamInvalid,
        fmt::format("{} bytes in rows of {} bytes, {} bytes apart: expected 1 to {} whole rows that do not overlap",
                    pair.nbytes, pair.rows.row_bytes, pair.rows.remote_pitch, kMaxRows));
  if (pair.nbytes == 0 || !range_within(pair.offset, *span, 0, item.nbytes))
    return Error(Status::kParamInvalid,
                 fmt::format("offset {} + {} bytes does not lie in described range {} of {} bytes", pair.offset,
                             pair.nbytes, pair.item, item.nbytes));
  bound.instance = description_.instance;
  bound.items.push_back({pair.local, item.address + pair.offset, pair.nbytes});
  bound.keys.push_back(item.key);
  const bool with_rows = pair.rows.row_bytes != 0 || pair.rows.local_pitch != 0 || pair.rows.remote_pitch != 0;
  if (with_rows || !bound.rows.empty()) {
    bound.rows.resize(bound.items.size() - 1);
    bound.rows.push_back(pair.rows);
  }
  return {};
}

}  // namespace onesided
