#include "onesided/device/acl/acl_device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "onesided/base/align.h"
#include "onesided/device/acl/factory.h"

namespace onesided {
namespace {

// A runtime of a few functions, to test AclDevice's handling of its caller's thread and of error codes.
thread_local int current_device = -1;
int events_alive = 0;
int event_status = 0;
int freed = 0;

acl::Code get_device(std::int32_t* device) {
  *device = current_device;
  return current_device < 0 ? 107002 : 0;
}
acl::Code set_device(std::int32_t device) {
  if (device > 1) return 107001;
  current_device = device;
  return 0;
}
acl::Code get_context(void** context) {
  *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(1000 + current_device));
  return current_device < 0 ? 107002 : 0;
}
acl::Code set_context(void* context) {
  current_device = static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 1000);
  return 0;
}
acl::Code fake_malloc(void** base, std::size_t nbytes, int policy) {
  EXPECT_EQ(policy, acl::kMallocHugeOnly);
  EXPECT_EQ(current_device, 1);
  if (nbytes > kGiB) return 207001;
  *base = std::aligned_alloc(2 * kMiB, *align_up(nbytes, 2 * kMiB));
  return 0;
}
acl::Code fake_free(void* base) {
  EXPECT_EQ(current_device, 1);
  std::free(base);
  ++freed;
  return 0;
}
acl::Code create_event(void** event, std::uint32_t) {
  static int numbered = 0;  // a device keeps its events for the next ones until the process ends
  *event = reinterpret_cast<void*>(static_cast<std::uintptr_t>(++numbered));
  ++events_alive;
  return 0;
}
acl::Code destroy_event(void*) {
  --events_alive;
  return 0;
}
const char* recent_error() { return "device memory exhausted"; }

acl::RuntimeFunctions small_runtime() {
  acl::RuntimeFunctions f;
  f.get_device = get_device;
  f.set_device = set_device;
  f.get_current_context = get_context;
  f.set_current_context = set_context;
  f.malloc = fake_malloc;
  f.free = fake_free;
  f.create_event = create_event;
  f.destroy_event = destroy_event;
  f.record_event = [](void*, void*) { return 0; };
  f.query_event_status = [](void*, int* status) {
    *status = event_status;
    return 0;
  };
  f.get_recent_error = recent_error;
  return f;
}

TEST(AclDevice, LeavesTheThreadsDeviceAsItWas) {
  AclDevice device(small_runtime(), 1);
  current_device = 0;
  void* base = device.allocate(4 * kMiB, 2 * kMiB).value();
  EXPECT_EQ(current_device, 0);
  current_device = 1;
  EXPECT_TRUE(device.free(base, 4 * kMiB).ok());
  EXPECT_EQ(current_device, 1);
  std::thread([&] {
    // A thread that never chose a device keeps this one, because the runtime has no call to set none.
    void* again = device.allocate(4 * kMiB, 2 * kMiB).value();
    EXPECT_EQ(current_device, 1);
    EXPECT_TRUE(device.free(again, 4 * kMiB).ok());
  }).join();
}

TEST(AclDevice, ReportsExhaustionAndFailuresWithTheRuntimesMessage) {
  AclDevice device(small_runtime(), 1);
  current_device = 1;
  const auto exhausted = device.allocate(2 * kGiB, 2 * kMiB);
  EXPECT_EQ(exhausted.status(), Status::kResourceExhausted);
  EXPECT_NE(exhausted.error().text().find("207001: device memory exhausted"), std::string::npos);
  AclDevice absent(small_runtime(), 5);
  EXPECT_EQ(absent.allocate(kMiB, 4096).status(), Status::kFailed);
  EXPECT_EQ(device.allocate(0, 4096).status(), Status::kParamInvalid);
}

TEST(AclDevice, ReusesEvents) {
  AclDevice device(small_runtime(), 1);
  current_device = 1;
  const int before = events_alive;
  for (int i = 0; i < 10; ++i) {
    const Event event = device.record_event({}).value();
    event_status = 0;
    EXPECT_FALSE(device.event_done(event).value());
    event_status = acl::kEventComplete;
    EXPECT_TRUE(device.event_done(event).value());
    device.release_event(event);
  }
  EXPECT_EQ(events_alive, before + 1);
}

TEST(AclDevice, OnlyTheSimulatedRuntimeExports) {
  AclDevice real(small_runtime(), 1);
  EXPECT_FALSE(real.host_accessible());
  EXPECT_EQ(real.export_memory(&real).status(), Status::kUnsupported);
  EXPECT_EQ(real.inspect(&real).status(), Status::kUnsupported);
}

TEST(AclFactory, ReportsThatNoRuntimeIsLoaded) {
  EXPECT_FALSE(acl_runtime_loaded());
  const auto device = acl_device(0);
  EXPECT_EQ(device.status(), Status::kNotFound);
  EXPECT_NE(device.error().text().find("libascendcl.so"), std::string::npos);
}

}  // namespace
}  // namespace onesided
