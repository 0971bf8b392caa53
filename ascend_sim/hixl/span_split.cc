#include "span_split.h"

#include <fmt/format.h>

#include <algorithm>

#include "onesided/base/align.h"

namespace onesided::hixl_abi {

Result<SplitItems> split_items(std::span<const Item> items, const SegmentSet& local, const SegmentSet& remote) {
  if (items.empty()) return Error(Status::kParamInvalid, "transfer: the list of items is empty");
  SplitItems out;
  out.direct.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.local == 0 || item.remote == 0 || item.nbytes == 0 || !checked_add(item.local, item.nbytes) ||
        !checked_add(item.remote, item.nbytes))
      return Error(Status::kParamInvalid,
                   fmt::format("transfer: item {} (local {:#x}, remote {:#x}, {} bytes) is null, "
                               "empty or passes the end of memory",
                               i, item.local, item.remote, item.nbytes));
    const std::size_t mark = out.direct.size();
    for (std::uint64_t done = 0; done < item.nbytes;) {
      const std::uint64_t left = item.nbytes - done;
      const std::uint64_t step = std::min(local.run(item.local + done, left), remote.run(item.remote + done, left));
      if (step == 0) {
        out.direct.resize(mark);
        out.staged.push_back(item);
        break;
      }
      out.direct.push_back({item.local + done, item.remote + done, step});
      done += step;
    }
  }
  return out;
}

}  // namespace onesided::hixl_abi
