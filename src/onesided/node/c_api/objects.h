// The opaque types of onesided.h, and the conversion of a C++ result into a status and an error text of this thread.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "onesided.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/engine/engine.h"
#include "onesided/engine/remote_regions.h"
#include "onesided/memory/pool.h"
#include "onesided/node/host_pool.h"
#include "onesided/node/pool_registration.h"

// Internally synchronized. The engine is shared with pool registrations, which may end later.
struct onesided_engine {
  std::shared_ptr<onesided::Engine> engine;
  onesided::Mutex mutex;
  std::deque<onesided::Notification> arrived ONESIDED_GUARDED_BY(mutex);  // drained from the engine, not taken yet
};
struct onesided_request {
  std::shared_ptr<onesided::Transfer> transfer;
};
struct onesided_remote {
  onesided::RemoteRegions regions;
};
struct onesided_notification {
  onesided::Notification content;
};
struct onesided_buffer {
  onesided::HostBuffer buffer;
};
struct onesided_pool {
  std::unique_ptr<onesided::Pool> pool;
  std::atomic<int> registrations{0};
};
struct onesided_pool_registration {
  onesided_pool* pool = nullptr;
  std::unique_ptr<onesided::PoolRegistration> registration;
};

namespace onesided::c_api {

inline constexpr onesided_status kSuccess = ONESIDED_SUCCESS;  // the enumerators have a type of their own

// Keeps the error for onesided_last_error() and returns its status.
onesided_status fail(const Error& error) noexcept;
// PARAM_INVALID: "onesided_connect: remote_id is NULL".
Error null_argument(const char* function, const char* name);

inline onesided_status outcome(const Result<void>& result) { return result.ok() ? kSuccess : fail(result.error()); }

// Runs `call`, which returns a status; its exceptions (no memory, no thread) become a status.
template <typename Call>
onesided_status guarded(const char* function, Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(Error(Status::kResourceExhausted, std::string(function) + ": the process has no memory left"));
  } catch (const std::exception& failure) {
    return fail(Error(Status::kFailed, std::string(function) + ": " + failure.what()));
  } catch (...) {
    return fail(Error(Status::kFailed, std::string(function) + ": an exception of an unknown type"));
  }
}

// ONESIDED_NO_LIMIT is the core's "no limit"; everything else goes to the core as it is, which checks it.
inline Engine::TimeoutMs timeout(std::int64_t timeout_ms) {
  return timeout_ms == ONESIDED_NO_LIMIT ? std::nullopt : Engine::TimeoutMs(timeout_ms);
}

// Converts a caller's structure to this library's version: fields beyond its `size` keep the defaults of `known`.
// PARAM_INVALID: smaller than its first field, or larger than this library knows.
template <typename Structure>
Result<Structure> sized(const char* function, const Structure* given, Structure known) {
  if (given == nullptr) return known;
  if (given->size < sizeof(given->size) || given->size > sizeof(Structure))
    return Error(Status::kParamInvalid, std::string(function) + ": size is " + std::to_string(given->size) +
                                            ", this library knows " + std::to_string(sizeof(Structure)) +
                                            "; initialize the structure with its _INIT macro, or use a newer library");
  std::memcpy(&known, given, given->size);
  return known;
}

}  // namespace onesided::c_api

// Returns from a function of the interface if a required pointer is null.
#define ONESIDED_C_REQUIRE(argument) \
  if ((argument) == nullptr) return ::onesided::c_api::fail(::onesided::c_api::null_argument(__func__, #argument))
