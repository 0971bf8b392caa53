// Engines over devices of the tests' own making: memory that the host cannot touch, that has a rule, that is put
// together from pieces.
#pragma once

#include "engine_pair.h"
#include "onesided/transport/cma/factory.h"
#include "onesided/transport/self/factory.h"
#include "onesided/transport/shm/factory.h"
#include "onesided/transport/tcp/factory.h"

namespace onesided::testing {

// What the engine does not ask for has the plainest answer. Thread-safe.
class TestDevice : public Device {
 public:
  virtual bool holds(std::uint64_t address) const = 0;

  std::string_view name() const override { return "distant:0"; }
  MemType mem_type() const override { return MemType::kDevice; }
  std::uint64_t page_bytes() const override { return 4096; }
  std::uint64_t registration_alignment() const override { return 1; }
  bool host_accessible() const override { return true; }
  Result<void*> allocate(std::uint64_t, std::uint64_t) override { return unsupported(); }
  Result<void> free(void*, std::uint64_t) override { return {}; }
  Result<MemoryInfo> memory_info() override { return MemoryInfo{}; }
  Result<Event> record_event(Stream) override { return Event{}; }
  Result<bool> event_done(Event) override { return true; }
  Result<void> wait_event(Event) override { return {}; }
  void release_event(Event) override {}
  Result<void> synchronize() override { return {}; }
  Result<void> copy_to_host(void*, const void*, std::uint64_t) override { return unsupported(); }
  Result<void> copy_from_host(void*, const void*, std::uint64_t) override { return unsupported(); }
  Result<ExportedMemory> export_memory(const void*) override { return unsupported(); }
  Result<PointerInfo> inspect(const void*) override { return PointerInfo{MemType::kDevice, 0}; }

 private:
  static Error unsupported() { return {Status::kUnsupported, "not a matter of this test's device"}; }
};

inline std::unique_ptr<Engine> open_with(TestDevice& device, const std::string& transports) {
  EngineParts parts;
  parts.devices.host = &shared_host_device();
  parts.devices.find_device = [&device](std::uint64_t address) -> Result<Device*> {
    if (device.holds(address)) return &device;
    return Error(Status::kParamInvalid, "not memory of the device");
  };
  parts.self_link = make_self_link();
  parts.transports.emplace_back("shm", [](const EngineOptions&, RegionAccess&) -> Result<std::unique_ptr<Transport>> {
    return make_shm_transport();
  });
  parts.transports.emplace_back("cma", [](const EngineOptions&, RegionAccess&) -> Result<std::unique_ptr<Transport>> {
    return make_cma_transport();
  });
  parts.transports.emplace_back(
      "tcp", [](const EngineOptions&, RegionAccess& memory) { return make_tcp_transport(TcpOptions{}, memory); });
  auto options = EngineOptions::parse({{"transports", transports}}, {"shm", "cma", "tcp"});
  ONESIDED_CHECK(options.ok(), "{}", options.error().text());
  auto engine = Engine::create("127.0.0.1:0", *options, std::move(parts));
  ONESIDED_CHECK(engine.ok(), "{}", engine.error().text());
  return std::move(engine).value();
}

}  // namespace onesided::testing
