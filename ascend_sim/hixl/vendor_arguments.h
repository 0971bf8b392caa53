// The two vendor classes take the same arguments under different type names. They are turned into ours here, and
// whatever a caller's enum does not define is refused instead of being cast.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "onesided/base/result.h"
#include "span_split.h"
#include "vendor_abi.h"
#include "vendor_engine.h"

namespace onesided::hixl_abi {

// Codes that only our engine has are FAILED to a vendor-style program.
inline std::uint32_t as_code(onesided::Status status) {
  const auto code = static_cast<std::uint32_t>(status);
  return code < 600000 ? code : static_cast<std::uint32_t>(onesided::Status::kFailed);
}

// Handles are numbers in the clothes of pointers; they are never followed.
inline void* as_handle(std::uint64_t number) { return reinterpret_cast<void*>(number); }
inline std::uint64_t as_number(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }

inline std::map<std::string, std::string> as_options(const std::map<ge::AscendString, ge::AscendString>& options) {
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : options) out[name.GetString()] = value.GetString();
  return out;
}

// The vendor's enum starts with the device.
inline Result<onesided::MemType> as_mem_type(int type) {
  if (type == 0) return onesided::MemType::kDevice;
  if (type == 1) return onesided::MemType::kHost;
  return Error(onesided::Status::kParamInvalid, "the memory type is neither MEM_DEVICE nor MEM_HOST");
}

template <typename Memory, typename Type>
Result<Segment> as_segment(const Memory& memory, Type type) {
  ONESIDED_TRY_ASSIGN(known, as_mem_type(static_cast<int>(type)));
  return Segment{memory.addr, memory.len, known};
}

template <typename Op>
Result<Direction> as_direction(Op op) {
  if (static_cast<int>(op) == 0) return Direction::kRead;
  if (static_cast<int>(op) == 1) return Direction::kWrite;
  return Error(onesided::Status::kParamInvalid, "the operation is neither READ nor WRITE");
}

// Items have one layout on both sides of the border, and there may be a hundred thousand: they are not copied.
template <typename Desc>
std::span<const Item> as_items(const std::vector<Desc>& items) {
  static_assert(sizeof(Desc) == sizeof(Item) && offsetof(Desc, local_addr) == offsetof(Item, local) &&
                offsetof(Desc, remote_addr) == offsetof(Item, remote) && offsetof(Desc, len) == offsetof(Item, nbytes));
  return {reinterpret_cast<const Item*>(items.data()), items.size()};
}

}  // namespace onesided::hixl_abi
