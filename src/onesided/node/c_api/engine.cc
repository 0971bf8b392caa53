// Engines, registrations and connections for C.
#include "onesided/engine/engine.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "onesided/node/c_api/objects.h"
#include "onesided/node/open_engine.h"

using onesided::Error;
using onesided::MemHandle;
using onesided::MemType;
using onesided::Result;
using onesided::Status;
using onesided::c_api::fail;
using onesided::c_api::guarded;
using onesided::c_api::outcome;
using onesided::c_api::sized;
using onesided::c_api::timeout;

namespace {

Result<std::map<std::string, std::string>> options_of(const onesided_engine_config& config) {
  std::map<std::string, std::string> options;
  if (config.option_count > 0 && config.options == nullptr)
    return Error(Status::kParamInvalid,
                 fmt::format("onesided_engine_open: option_count is {} and options is NULL", config.option_count));
  for (std::size_t i = 0; i < config.option_count; ++i) {
    const auto& [name, value] = config.options[i];
    if (name == nullptr || value == nullptr)
      return Error(Status::kParamInvalid, fmt::format("onesided_engine_open: name or value of option {} is NULL", i));
    if (!options.emplace(name, value).second)
      return Error(Status::kParamInvalid, fmt::format("onesided_engine_open: option \"{}\" is given twice", name));
  }
  return options;
}

MemHandle core_handle(const onesided_mem_handle& handle) {
  return {{handle.index, handle.generation}, handle.instance};
}

}  // namespace

extern "C" {

onesided_status onesided_engine_open(const onesided_engine_config* config, onesided_engine** engine) {
  ONESIDED_C_REQUIRE(engine);
  *engine = nullptr;
  return guarded(__func__, [&]() -> onesided_status {
    auto known = sized("onesided_engine_open", config, onesided_engine_config ONESIDED_ENGINE_CONFIG_INIT);
    if (!known.ok()) return fail(known.error());
    auto options = options_of(*known);
    if (!options.ok()) return fail(options.error());
    const char* address = known->local_engine != nullptr ? known->local_engine : "127.0.0.1:0";
    auto opened = onesided::open_engine(address, *options);
    if (!opened.ok()) return fail(opened.error());
    *engine = new onesided_engine{.engine = std::move(opened).value(), .mutex = {}, .arrived = {}};
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_engine_close(onesided_engine* engine) {
  ONESIDED_C_REQUIRE(engine);
  return guarded(__func__, [&]() -> onesided_status {
    engine->engine->close();
    return ONESIDED_SUCCESS;
  });
}

void onesided_engine_free(onesided_engine* engine) {
  if (engine == nullptr) return;
  (void)onesided_engine_close(engine);
  delete engine;
}

const char* onesided_engine_id(const onesided_engine* engine) {
  return engine == nullptr ? nullptr : engine->engine->id().c_str();
}

onesided_status onesided_register(onesided_engine* engine, void* address, uint64_t nbytes, onesided_memory_type type,
                                  onesided_mem_handle* handle) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(address);
  ONESIDED_C_REQUIRE(handle);
  return guarded(__func__, [&]() -> onesided_status {
    if (type != ONESIDED_MEMORY_HOST && type != ONESIDED_MEMORY_DEVICE)
      return fail(Error(Status::kParamInvalid,
                        fmt::format("onesided_register: memory type {}; expected 0 (host) or 1 (device)", type)));
    const auto made =
        engine->engine->register_mem(reinterpret_cast<std::uintptr_t>(address), nbytes, static_cast<MemType>(type));
    if (!made.ok()) return fail(made.error());
    *handle = {made->key.index, made->key.generation, made->instance};
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_deregister(onesided_engine* engine, onesided_mem_handle handle, int64_t timeout_ms) {
  ONESIDED_C_REQUIRE(engine);
  return guarded(__func__,
                 [&] { return outcome(engine->engine->deregister_mem(core_handle(handle), timeout(timeout_ms))); });
}

onesided_status onesided_connect(onesided_engine* engine, const char* remote_id, int64_t timeout_ms) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  return guarded(__func__, [&] { return outcome(engine->engine->connect(remote_id, timeout(timeout_ms))); });
}

onesided_status onesided_disconnect(onesided_engine* engine, const char* remote_id) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  return guarded(__func__, [&] { return outcome(engine->engine->disconnect(remote_id)); });
}

onesided_status onesided_connect_async(onesided_engine* engine, const char* remote_id, int64_t timeout_ms) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  return guarded(__func__, [&] { return outcome(engine->engine->connect_async(remote_id, timeout(timeout_ms))); });
}

onesided_status onesided_disconnect_async(onesided_engine* engine, const char* remote_id) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  return guarded(__func__, [&] { return outcome(engine->engine->disconnect_async(remote_id)); });
}

onesided_status onesided_async_connect_status(onesided_engine* engine, const char* remote_id,
                                              onesided_transfer_status* status, onesided_status* error) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  ONESIDED_C_REQUIRE(status);
  return guarded(__func__, [&]() -> onesided_status {
    const auto known = engine->engine->async_connect_outcome(remote_id);
    if (!known.ok()) return fail(known.error());
    *status = static_cast<onesided_transfer_status>(known->status);
    const onesided_status cause = known->error ? fail(*known->error) : onesided::c_api::kSuccess;
    if (error != nullptr) *error = cause;
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_capability(onesided_engine* engine, const char* name, int64_t* value) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(name);
  ONESIDED_C_REQUIRE(value);
  return guarded(__func__, [&]() -> onesided_status {
    const auto known = engine->engine->capability(name);
    if (!known.ok()) return fail(known.error());
    *value = *known;
    return ONESIDED_SUCCESS;
  });
}

}  // extern "C"
