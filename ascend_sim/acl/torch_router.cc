#include "ascend_sim/acl/torch_router.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <fstream>
#include <string>

#include "onesided/base/log.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {
namespace {

// Path of the loaded libtorch_cpu.so; empty when this process has none.
std::string loaded_torch() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        const std::string_view name = info->dlpi_name ? info->dlpi_name : "";
        if (!name.ends_with("/libtorch_cpu.so")) return 0;
        *static_cast<std::string*>(found) = name;
        return 1;
      },
      &path);
  return path;
}

// "213" for torch 2.13.x, from the version.py that every torch package has beside its lib folder.
std::string torch_minor(const std::string& library) {
  const auto lib_folder = library.rfind("/lib/");
  std::ifstream version(library.substr(0, lib_folder) + "/version.py");
  for (std::string line; std::getline(version, line);) {
    int major = 0;
    int minor = 0;
    if (std::sscanf(line.c_str(), "__version__ = '%d.%d.", &major, &minor) == 2)
      return fmt::format("{}{}", major, minor);
  }
  return {};
}

std::string own_folder() {
  Dl_info info{};
  if (!::dladdr(reinterpret_cast<const void*>(&route_torch_operators), &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Null when all is well, else what went wrong.
std::string load(const std::string& torch) {
  const std::string minor = torch_minor(torch);
  if (minor.empty()) return fmt::format("cannot tell the version of {}", torch);
  const std::string path = fmt::format("{}/libonesided_route_torch{}.so", own_folder(), minor);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return ::dlerror();
  const auto install = reinterpret_cast<int (*)()>(::dlsym(library, "onesided_route_install"));
  if (!install) return fmt::format("{} has no onesided_route_install", path);
  const int routed = install();
  if (routed <= 0) return fmt::format("{} routed no operator", path);
  log_line(LogLevel::kInfo, fmt::format("{} operators of npu tensors run on PyTorch's CPU kernels", routed));
  return {};
}

}  // namespace

void route_torch_operators() {
  static Mutex mutex;
  static bool done = false;
  MutexLock lock(mutex);
  if (done) return;
  const std::string torch = loaded_torch();
  if (torch.empty()) return;  // perhaps later
  done = true;
  if (const std::string problem = load(torch); !problem.empty()) {
    log_line(LogLevel::kWarn,
             fmt::format("operators of npu tensors are not routed to the CPU, only copies will work: {}", problem));
  }
}

}  // namespace onesided::sim
