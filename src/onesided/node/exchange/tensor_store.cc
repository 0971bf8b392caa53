#include "onesided/node/exchange/tensor_store.h"

#include <fmt/format.h>

#include <utility>

#include "onesided/base/align.h"
#include "onesided/node/exchange/object_desc.h"

namespace onesided {

TensorStore::~TensorStore() {
  std::unordered_map<std::string, Object> left;
  {
    MutexLock lock(mutex_);
    left.swap(objects_);
  }
  for (const auto& [id, object] : left) drop(object);
}

Result<TensorStore::Published> TensorStore::publish(const std::string& object_id, std::span<const TensorSpan> tensors) {
  if (auto known = find(object_id)) return *std::move(known);
  auto made = make(tensors);
  if (!made) return made.error().with_context(fmt::format("publishing object {}", object_id));
  Object object = *std::move(made);
  Published answer = object.published;
  {
    MutexLock lock(mutex_);
    // T0: publish(x) | T1: publish(x), both found no object: the first one added is kept, the second releases its
    // holds.
    const auto [entry, inserted] = objects_.try_emplace(object_id, std::move(object));
    if (inserted) {
      ++counts_.objects;
      ++counts_.published;
      counts_.nbytes += answer.nbytes;
      return answer;
    }
    answer = entry->second.published;
  }
  drop(object);
  return answer;
}

Result<TensorStore::Object> TensorStore::make(std::span<const TensorSpan> tensors) {
  Object object;
  ObjectDesc desc;
  desc.tensors.reserve(tensors.size());
  std::vector<MemRange> ranges;
  ranges.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpan& tensor = tensors[i];
    TensorDesc& described = desc.tensors.emplace_back(TensorDesc{.type = tensor.bytes.type, .pieces = {}});
    if (tensor.bytes.nbytes == 0) continue;
    auto held = range_within(tensor.bytes.address, tensor.bytes.nbytes, tensor.whole.address, tensor.whole.nbytes)
                    ? regions_.hold(tensor)
                    : Error{Status::kParamInvalid, "its bytes do not lie in the memory that was given for them"};
    if (!held) {
      drop(object);
      return held.error().with_context(fmt::format("tensor {} of {}", i, tensors.size()));
    }
    for (const MemRange& piece : held->pieces) {
      described.pieces.push_back(piece.nbytes);
      ranges.push_back(piece);
    }
    object.published.nbytes += tensor.bytes.nbytes;
    if (!held->regions.empty()) object.held.push_back(*std::move(held));
  }
  if (!ranges.empty()) {
    auto regions = engine_.describe(ranges);
    if (!regions) {
      drop(object);
      return regions.error();
    }
    desc.regions = *std::move(regions);
  }
  object.published.tensors = tensors.size();
  object.published.desc = desc.encode();
  object.published.meta_version = engine_.regions_version();
  return object;
}

bool TensorStore::release(const std::string& object_id) {
  Object object;
  {
    MutexLock lock(mutex_);
    auto node = objects_.extract(object_id);
    if (node.empty()) return false;
    object = std::move(node.mapped());
    --counts_.objects;
    ++counts_.released;
    counts_.nbytes -= object.published.nbytes;
  }
  drop(object);
  return true;
}

std::optional<TensorStore::Published> TensorStore::find(const std::string& object_id) const {
  MutexLock lock(mutex_);
  const auto found = objects_.find(object_id);
  if (found == objects_.end()) return std::nullopt;
  return found->second.published;
}

TensorStore::Counts TensorStore::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

void TensorStore::drop(const Object& object) {
  for (const RegionRefs::Held& held : object.held) regions_.drop(held);
}

}  // namespace onesided
