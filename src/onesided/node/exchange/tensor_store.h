// The owner's side of an object: its tensors' memory is registered while the object lives, and what readers need
// is written down once. Releasing is idempotent, since Ray may free an object twice or after a failed creation.
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
    std::string desc;                // ObjectDesc, encoded
    std::uint64_t meta_version = 0;  // a reader connected with a lower one may not see the regions (sees_new_regions())
    std::uint64_t nbytes = 0;
    std::uint64_t tensors = 0;
  };
  struct Counts {
    std::uint64_t objects = 0;    // now
    std::uint64_t published = 0;  // ever
    std::uint64_t released = 0;   // ever
    std::uint64_t nbytes = 0;     // of the objects that live now; memory in two objects counts twice
  };

  TensorStore(EnginePort& engine, RegionRefs& regions) : engine_(engine), regions_(regions) {}
  // Releases what is left.
  ~TensorStore();
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  // Registers what is not yet registered and describes it. The spans' memory must stay in place until release(). Empty
  // spans (0 bytes) are tensors without bytes. An id that lives already: its first description again (Ray retries
  // tasks). An error leaves nothing behind.
  Result<Published> publish(const std::string& object_id, std::span<const TensorSpan> tensors);
  // False: no such object (any more).
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
