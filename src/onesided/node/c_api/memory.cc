// Buffers and aligned pools for C.
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "onesided/device/acl/factory.h"
#include "onesided/device/host/factory.h"
#include "onesided/memory/segment_source.h"
#include "onesided/node/c_api/objects.h"

using onesided::Device;
using onesided::Error;
using onesided::MemHandle;
using onesided::MemType;
using onesided::Pool;
using onesided::PoolOptions;
using onesided::Result;
using onesided::Status;
using onesided::Stream;
using onesided::c_api::fail;
using onesided::c_api::guarded;
using onesided::c_api::outcome;
using onesided::c_api::sized;

namespace {

// The number in "npu:N"; std::nullopt for anything else.
std::optional<int> npu_number(std::string_view device) {
  constexpr std::string_view kPrefix = "npu:";
  if (!device.starts_with(kPrefix)) return std::nullopt;
  const auto digits = device.substr(kPrefix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

Result<std::unique_ptr<Pool>> open_pool(const onesided_pool_config& config) {
  PoolOptions options;
  if (config.segment_bytes != 0) options.segment_bytes = config.segment_bytes;
  if (config.segment_bytes_max != 0) options.segment_bytes_max = config.segment_bytes_max;
  options.max_bytes = config.max_bytes;
  options.preallocate_bytes = config.preallocate_bytes;
  options.gc_threshold = config.gc_threshold;
  const std::string_view name = config.device != nullptr ? config.device : "host";
  if (name == "host") {
    options.alignment = config.alignment != 0 ? config.alignment : onesided::shared_host_device().page_bytes();
    return onesided::create_host_pool(options);
  }
  const auto number = npu_number(name);
  if (!number)
    return Error(Status::kParamInvalid,
                 fmt::format("onesided_pool_open: device \"{}\"; expected \"host\" or \"npu:N\"", name));
  ONESIDED_TRY_ASSIGN(device, onesided::acl_device(*number));
  if (config.alignment != 0) options.alignment = config.alignment;
  return Pool::create(*device, onesided::make_device_source(*device), options);
}

std::uint64_t unsigned_of(std::int64_t value) { return value > 0 ? static_cast<std::uint64_t>(value) : 0; }

// A pool's segments register with this engine. The registration shares the engine, so that one that was freed first
// answers CLOSED. Handles go through the pool's interface as numbers: the key, since the engine is always this one.
onesided::RegistrationCalls calls_to(const std::shared_ptr<onesided::Engine>& engine,
                                     const std::shared_ptr<std::atomic<std::uint64_t>>& instance) {
  return {.register_memory = [engine, instance](std::uint64_t address, std::uint64_t nbytes,
                                                MemType type) -> Result<std::uint64_t> {
            ONESIDED_TRY_ASSIGN(handle, engine->register_mem(address, nbytes, type));
            instance->store(handle.instance);
            return (std::uint64_t{handle.key.index} << 32) | handle.key.generation;
          },
          .deregister_memory =
              [engine, instance](std::uint64_t number) {
                return engine->deregister_mem(MemHandle{
                    {static_cast<std::uint32_t>(number >> 32), static_cast<std::uint32_t>(number)}, instance->load()});
              }};
}

}  // namespace

extern "C" {

onesided_status onesided_buffer_create(uint64_t nbytes, uint64_t alignment, onesided_buffer** buffer) {
  ONESIDED_C_REQUIRE(buffer);
  *buffer = nullptr;
  return guarded(__func__, [&]() -> onesided_status {
    auto made = onesided::HostBuffer::create(nbytes, alignment != 0 ? alignment : onesided::kAscendPageBytes);
    if (!made.ok()) return fail(made.error());
    *buffer = new onesided_buffer{std::move(made).value()};
    return ONESIDED_SUCCESS;
  });
}

void* onesided_buffer_address(const onesided_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->buffer.address();
}

uint64_t onesided_buffer_nbytes(const onesided_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->buffer.nbytes();
}

void onesided_buffer_free(onesided_buffer* buffer) { delete buffer; }

onesided_status onesided_pool_open(const onesided_pool_config* config, onesided_pool** pool) {
  ONESIDED_C_REQUIRE(pool);
  *pool = nullptr;
  return guarded(__func__, [&]() -> onesided_status {
    const auto known = sized("onesided_pool_open", config, onesided_pool_config ONESIDED_POOL_CONFIG_INIT);
    if (!known.ok()) return fail(known.error());
    auto made = std::make_unique<onesided_pool>();
    auto opened = open_pool(*known);
    if (!opened.ok()) return fail(opened.error());
    made->pool = std::move(opened).value();
    *pool = made.release();
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_pool_free(onesided_pool* pool) {
  if (pool == nullptr) return ONESIDED_SUCCESS;
  return guarded(__func__, [&]() -> onesided_status {
    if (const int left = pool->registrations.load(); left > 0)
      return fail(
          Error(Status::kBusy, fmt::format("onesided_pool_free: {} registrations of the pool are left; free them "
                                           "first",
                                           left)));
    pool->pool->settle();
    if (!pool->pool->unused())
      return fail(Error(Status::kBusy, fmt::format("onesided_pool_free: {} blocks are held; release them first",
                                                   pool->pool->live_addresses().size())));
    delete pool;
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_pool_allocate(onesided_pool* pool, uint64_t nbytes, void* stream, void** address,
                                       uint64_t* charged_bytes) {
  ONESIDED_C_REQUIRE(address);
  *address = nullptr;
  ONESIDED_C_REQUIRE(pool);
  return guarded(__func__, [&]() -> onesided_status {
    if (nbytes == 0) return fail(Error(Status::kParamInvalid, "onesided_pool_allocate: nbytes is 0"));
    const auto block = pool->pool->allocate(nbytes, Stream{stream});
    if (!block.ok()) return fail(block.error());
    *address = block->address;
    if (charged_bytes != nullptr) *charged_bytes = block->charged_bytes;
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_pool_release(onesided_pool* pool, void* address) {
  ONESIDED_C_REQUIRE(pool);
  ONESIDED_C_REQUIRE(address);
  return guarded(__func__, [&] { return outcome(pool->pool->free(address)); });
}

onesided_status onesided_pool_record_stream(onesided_pool* pool, void* address, void* stream) {
  ONESIDED_C_REQUIRE(pool);
  ONESIDED_C_REQUIRE(address);
  return guarded(__func__, [&] { return outcome(pool->pool->record_stream(address, Stream{stream})); });
}

onesided_status onesided_pool_trim(onesided_pool* pool, uint64_t wanted, uint64_t* freed) {
  ONESIDED_C_REQUIRE(pool);
  return guarded(__func__, [&]() -> onesided_status {
    const auto bytes = pool->pool->trim(wanted);
    if (freed != nullptr) *freed = bytes;
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_pool_get_stats(onesided_pool* pool, onesided_pool_stats* stats) {
  ONESIDED_C_REQUIRE(pool);
  ONESIDED_C_REQUIRE(stats);
  return guarded(__func__, [&]() -> onesided_status {
    const auto known = sized("onesided_pool_get_stats", stats, onesided_pool_stats ONESIDED_POOL_STATS_INIT);
    if (!known.ok()) return fail(known.error());
    const auto now = pool->pool->stats();
    const onesided_pool_stats filled = {
        .size = stats->size,
        .allocations = unsigned_of(now.allocation.current),
        .segments = unsigned_of(now.segment.current),
        .requested_bytes = unsigned_of(now.requested_bytes.current),
        .charged_bytes = unsigned_of(now.allocated_bytes.current),
        .reserved_bytes = unsigned_of(now.reserved_bytes.current),
        .overhead_bytes = unsigned_of(now.overhead_bytes.current),
        .peak_charged_bytes = unsigned_of(now.allocated_bytes.peak),
        .peak_reserved_bytes = unsigned_of(now.reserved_bytes.peak),
        .out_of_memory = unsigned_of(now.num_ooms),
    };
    std::memcpy(stats, &filled, stats->size);
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_pool_register(onesided_pool* pool, onesided_engine* engine,
                                       onesided_pool_registration** registration) {
  ONESIDED_C_REQUIRE(registration);
  *registration = nullptr;
  ONESIDED_C_REQUIRE(pool);
  ONESIDED_C_REQUIRE(engine);
  return guarded(__func__, [&]() -> onesided_status {
    auto kept = std::make_unique<onesided_pool_registration>();
    auto instance = std::make_shared<std::atomic<std::uint64_t>>(0);
    auto made = onesided::PoolRegistration::create(*pool->pool, calls_to(engine->engine, instance));
    if (!made.ok()) return fail(made.error());
    kept->pool = pool;
    kept->registration = std::move(made).value();
    pool->registrations.fetch_add(1);
    *registration = kept.release();
    return ONESIDED_SUCCESS;
  });
}

void onesided_pool_registration_free(onesided_pool_registration* registration) {
  if (registration == nullptr) return;
  registration->registration.reset();
  registration->pool->registrations.fetch_sub(1);
  delete registration;
}

}  // extern "C"
