#include "fit.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <typeinfo>

#include "aligned_allocator.h"

namespace onesided::torch_npu {
namespace {

// Its function comes after all of NPUAllocator's.
struct OneMore : NPUAllocator {
  virtual void one_more() {}
};

// The place in the virtual table that a pointer to a virtual member function names (Itanium C++ ABI, 2.3: the offset
// in bytes, with one added on x86_64; on aarch64 the mark is kept in the second word).
template <typename Member>
std::size_t place_of(Member member) {
  std::uintptr_t words[2];
  static_assert(sizeof member == sizeof words);
  std::memcpy(words, &member, sizeof words);
#ifdef __aarch64__
  return words[0] / sizeof(void*);
#else
  return (words[0] - 1) / sizeof(void*);
#endif
}

struct Range {
  std::uintptr_t address;
  bool executable;
};

bool is_code(const void* address) {
  Range range{reinterpret_cast<std::uintptr_t>(address), false};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Range*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr) & part = info->dlpi_phdr[i];
          const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          if (part.p_type != PT_LOAD || wanted.address < begin || wanted.address >= begin + part.p_memsz) continue;
          wanted.executable = (part.p_flags & PF_X) != 0;
          return 1;
        }
        return 0;
      },
      &range);
  return range.executable;
}

void* const* table_of(const NPUAllocator* allocator) { return *reinterpret_cast<void* const* const*>(allocator); }

// The exported symbol of the code; empty: it has none.
std::string symbol_at(const void* address) {
  Dl_info info{};
  if (!::dladdr(address, &info) || !info.dli_sname || info.dli_saddr != address) return {};
  return info.dli_sname;
}

const NPUAllocator* current() {
  const NPUAllocator* allocator = npu_alloc::allocator.load();
  return allocator == &AlignedAllocator::instance() ? AlignedAllocator::instance().native() : allocator;
}

}  // namespace

std::size_t functions_compiled() { return place_of(&OneMore::one_more); }

std::size_t functions_running() {
  void* const* table = table_of(current());
  std::size_t count = 0;
  while (is_code(table[count])) ++count;
  return count;
}

std::string running_class() {
  // Not typeid(): the class is the library's, its name is all that is wanted, and it stands before the table.
  const auto* info = static_cast<const std::type_info*>(table_of(current())[-1]);
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(info->name(), nullptr, nullptr, &failed),
                                                         &std::free);
  return failed == 0 ? name.get() : info->name();
}

std::string misplaced_symbol() {
  void* const* running = table_of(current());
  void* const* ours = table_of(&AlignedAllocator::instance());
  for (std::size_t place = 0; place < functions_compiled(); ++place) {
    const std::string symbol = symbol_at(running[place]);
    const std::string inherited = symbol_at(ours[place]);
    // Ours overrides; what it inherits from torch's own library has a symbol, and must stand at the same place.
    if (!inherited.empty() && inherited.starts_with("_ZNK3c10") && symbol != inherited) {
      return fmt::format("function {} is {}, expected {}", place, symbol.empty() ? "another" : symbol, inherited);
    }
  }
  return {};
}

}  // namespace onesided::torch_npu
