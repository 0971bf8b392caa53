// Published objects: the owner's side. The memory of an object's tensors is registered while the object exists, and its
// description is made once. Releasing is idempotent, because Ray may free an object twice or after a failed creation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/node/exchange/region_refs.h"

namespace onesided {

// Objects published by this process. Internally synchronized. Engine and regions must outlive it.
class TensorStore {
 public:
  struct Published {
    std::string desc;  // ObjectDesc, encoded
    std::uint64_t meta_version =
        0;  // a reader that connected at a lower version may not see the regions (sees_new_regions())
    std::uint64_t nbytes = 0;
    std::uint64_t tensors = 0;
  };
  struct Counts {
    std::uint64_t objects = 0;    // current
    std::uint64_t published = 0;  // in total
    std::uint64_t released = 0;   // in total
    std::uint64_t nbytes = 0;     // of the current objects; memory in two objects counts twice
  };

  TensorStore(EnginePort& engine, RegionRefs& regions) : engine_(engine), regions_(regions) {}
  // Releases the remaining objects.
  ~TensorStore();
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  // Registers the memory that is not registered yet and describes it. The spans' memory must remain valid until
  // release(). Empty spans (0 bytes) are tensors without bytes. If the id is published already, returns its first
  // description again (Ray retries tasks). After an error no state has changed.
  Result<Published> publish(const std::string& object_id, std::span<const TensorSpan> tensors);
  // False: there is no such object.
  bool release(const std::string& object_id);
  std::optional<Published> find(const std::string& object_id) const;
  Counts counts() const;

 private:
  struct Object {
    Published published;
    std::vector<RegionRefs::Held> held;
  };
  Result<Object> make(std::span<const TensorSpan> tensors);
  void drop(const Object& object);

  EnginePort& engine_;
  RegionRefs& regions_;

  mutable Mutex mutex_;
  std::unordered_map<std::string, Object> objects_ ONESIDED_GUARDED_BY(mutex_);
  Counts counts_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
