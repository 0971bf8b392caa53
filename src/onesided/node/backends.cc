// Constructs the concrete devices and transports; no other file names them.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "onesided/device/acl/factory.h"
#include "onesided/device/host/factory.h"
#include "onesided/engine/endpoint.h"
#include "onesided/node/open_engine.h"
#include "onesided/transport/ascend/factory.h"
#include "onesided/transport/cma/factory.h"
#include "onesided/transport/self/factory.h"
#include "onesided/transport/shm/factory.h"
#include "onesided/transport/tcp/factory.h"

namespace onesided {
namespace {

Result<Device*> find_npu(std::uint64_t address) {
  if (!acl_runtime_loaded())
    return Error(
        Status::kParamInvalid,
        fmt::format("{:#x} cannot be device memory: no Ascend runtime is loaded in this process; register plain "
                    "memory as \"host\", or start the program with `onesided sim`",
                    address));
  const auto* pointer = reinterpret_cast<const void*>(address);
  ONESIDED_TRY_ASSIGN(any, acl_device(0));
  const auto info = any->inspect(pointer);
  if (!info.ok() || info->type != MemType::kDevice)
    return Error(Status::kParamInvalid,
                 fmt::format("{:#x} is not memory of an NPU; register plain memory as \"host\"", address));
  return acl_device(info->device_id);
}

EngineParts::MakeTransport always(std::unique_ptr<Transport> (*make)()) {
  return [make](const EngineOptions&, RegionAccess&) -> Result<std::unique_ptr<Transport>> { return make(); };
}

Result<std::unique_ptr<Transport>> make_tcp(const EngineOptions& options, RegionAccess& memory) {
  TcpOptions tcp;
  tcp.streams = options.tcp_streams;
  // More threads than streams to one peer, or than processors, do not increase the throughput.
  tcp.threads = std::clamp(std::thread::hardware_concurrency() / 2, 1U, tcp.streams);
  tcp.congestion = options.tcp_congestion;
  return make_tcp_transport(tcp, memory);
}

// The numeric address that the engine listens on; HIXL listens on the same address.
std::string numeric_host(std::string_view local_engine) {
  const auto endpoint = Endpoint::parse(local_engine);
  if (!endpoint) return {};
  const auto addresses = resolve(*endpoint);
  if (!addresses || addresses->empty()) return {};
  const auto numeric = Endpoint::parse(addresses->front().to_string());
  return numeric ? numeric->host : std::string();
}

EngineParts backends(std::string_view local_engine) {
  EngineParts parts;
  parts.devices.host = &shared_host_device();
  parts.devices.find_device = find_npu;
  parts.self_link = make_self_link();
  parts.transports.emplace_back("shm", always(&make_shm_transport));
  parts.transports.emplace_back("cma", always(&make_cma_transport));
  parts.transports.emplace_back(
      "ascend",
      [id = std::string(local_engine)](const EngineOptions&, RegionAccess&) -> Result<std::unique_ptr<Transport>> {
        return make_ascend_transport({.host = numeric_host(id)});
      });
  parts.transports.emplace_back("tcp", make_tcp);
  return parts;
}

}  // namespace

std::vector<std::string> known_transports() {
  std::vector<std::string> names;
  for (const auto& [name, make] : backends("").transports) names.push_back(name);
  return names;
}

std::vector<std::string> default_transports() {
  std::vector<std::string> names = known_transports();
  const auto npu = acl_device(0);
  const bool real_npu = npu.ok() && !(*npu)->host_accessible();
  if (!real_npu) std::erase(names, "ascend");
  return names;
}

Result<std::unique_ptr<Engine>> open_engine(std::string_view local_engine,
                                            const std::map<std::string, std::string>& options) {
  ONESIDED_TRY_ASSIGN(parsed, EngineOptions::parse(options, known_transports()));
  if (!options.contains("transports")) parsed.transports = default_transports();
  return Engine::create(local_engine, parsed, backends(local_engine));
}

}  // namespace onesided
