// Transfers for C: lists of ranges, requests, and descriptions of another process's memory.
#include <fmt/format.h>

#include <cstring>
#include <span>
#include <vector>

#include "onesided/node/c_api/objects.h"

using onesided::BoundItems;
using onesided::Deadline;
using onesided::Error;
using onesided::Op;
using onesided::Result;
using onesided::Status;
using onesided::TransferItem;
using onesided::TransferList;
using onesided::c_api::fail;
using onesided::c_api::guarded;
using onesided::c_api::outcome;
using onesided::c_api::timeout;

namespace {

static_assert(sizeof(onesided_item) == sizeof(TransferItem), "the list is handed on without a copy");

Result<Op> op_of(const char* function, onesided_operation operation) {
  if (operation == ONESIDED_READ) return Op::kRead;
  if (operation == ONESIDED_WRITE) return Op::kWrite;
  return Error(Status::kParamInvalid,
               fmt::format("{}: operation {}; expected 0 (READ) or 1 (WRITE)", function, operation));
}

TransferList list_of(const onesided_item* items, std::size_t count) {
  return {.items = {reinterpret_cast<const TransferItem*>(items), count}, .instance = nullptr, .keys = {}};
}

Result<BoundItems> bind(const onesided_remote& remote, const onesided_bound_item* items, std::size_t count) {
  BoundItems bound;
  bound.instance = remote.regions.instance();
  bound.items.reserve(count);
  bound.keys.reserve(count);
  for (const auto& item : std::span(items, count))
    ONESIDED_TRY(remote.regions.bind({item.local, item.range, item.offset, item.nbytes}, bound));
  return bound;
}

onesided_status transfer_sync(const char* function, onesided_engine& engine, const std::string& remote_id,
                              onesided_operation operation, const TransferList& list, std::int64_t timeout_ms) {
  const auto op = op_of(function, operation);
  if (!op.ok()) return fail(op.error());
  return outcome(engine.engine->transfer_sync(remote_id, *op, list, timeout(timeout_ms)));
}

onesided_status transfer_async(const char* function, onesided_engine& engine, const std::string& remote_id,
                               onesided_operation operation, const TransferList& list, std::int64_t timeout_ms,
                               onesided_request** request) {
  const auto op = op_of(function, operation);
  if (!op.ok()) return fail(op.error());
  auto made = std::make_unique<onesided_request>();  // first: nothing may fail once bytes move
  auto started = engine.engine->transfer_async(remote_id, *op, list, timeout(timeout_ms));
  if (!started.ok()) return fail(started.error());
  made->transfer = std::move(started).value();
  *request = made.release();
  return ONESIDED_SUCCESS;
}

}  // namespace

extern "C" {

onesided_status onesided_transfer_sync(onesided_engine* engine, const char* remote_id, onesided_operation operation,
                                       const onesided_item* items, size_t count, int64_t timeout_ms) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  ONESIDED_C_REQUIRE(items);
  return guarded(__func__, [&] {
    return transfer_sync("onesided_transfer_sync", *engine, remote_id, operation, list_of(items, count), timeout_ms);
  });
}

onesided_status onesided_transfer_async(onesided_engine* engine, const char* remote_id, onesided_operation operation,
                                        const onesided_item* items, size_t count, int64_t timeout_ms,
                                        onesided_request** request) {
  ONESIDED_C_REQUIRE(request);
  *request = nullptr;
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  ONESIDED_C_REQUIRE(items);
  return guarded(__func__, [&] {
    return transfer_async("onesided_transfer_async", *engine, remote_id, operation, list_of(items, count), timeout_ms,
                          request);
  });
}

onesided_status onesided_transfer_bound_sync(onesided_engine* engine, const onesided_remote* remote,
                                             onesided_operation operation, const onesided_bound_item* items,
                                             size_t count, int64_t timeout_ms) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote);
  ONESIDED_C_REQUIRE(items);
  return guarded(__func__, [&]() -> onesided_status {
    const auto bound = bind(*remote, items, count);
    if (!bound.ok()) return fail(bound.error());
    return transfer_sync("onesided_transfer_bound_sync", *engine, remote->regions.engine_id(), operation, bound->list(),
                         timeout_ms);
  });
}

onesided_status onesided_transfer_bound_async(onesided_engine* engine, const onesided_remote* remote,
                                              onesided_operation operation, const onesided_bound_item* items,
                                              size_t count, int64_t timeout_ms, onesided_request** request) {
  ONESIDED_C_REQUIRE(request);
  *request = nullptr;
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote);
  ONESIDED_C_REQUIRE(items);
  return guarded(__func__, [&]() -> onesided_status {
    const auto bound = bind(*remote, items, count);
    if (!bound.ok()) return fail(bound.error());
    return transfer_async("onesided_transfer_bound_async", *engine, remote->regions.engine_id(), operation,
                          bound->list(), timeout_ms, request);
  });
}

onesided_status onesided_request_status(const onesided_request* request, onesided_transfer_status* status) {
  ONESIDED_C_REQUIRE(request);
  ONESIDED_C_REQUIRE(status);
  *status = static_cast<onesided_transfer_status>(request->transfer->status());
  return ONESIDED_SUCCESS;
}

onesided_status onesided_request_wait(onesided_request* request, int64_t timeout_ms, onesided_transfer_status* status) {
  ONESIDED_C_REQUIRE(request);
  ONESIDED_C_REQUIRE(status);
  return guarded(__func__, [&]() -> onesided_status {
    if (timeout_ms <= 0)
      return fail(Error(Status::kParamInvalid,
                        fmt::format("onesided_request_wait: timeout_ms is {}; expected above 0", timeout_ms)));
    const auto final_status = request->transfer->wait(Deadline::after_ms(timeout(timeout_ms)));
    if (!final_status.ok()) return fail(final_status.error());
    *status = static_cast<onesided_transfer_status>(*final_status);
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_request_cancel(onesided_request* request) {
  ONESIDED_C_REQUIRE(request);
  return guarded(__func__, [&]() -> onesided_status {
    request->transfer->cancel();
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_request_error(const onesided_request* request) {
  ONESIDED_C_REQUIRE(request);
  return guarded(__func__, [&]() -> onesided_status {
    const auto error = request->transfer->error();
    return error ? fail(*error) : onesided::c_api::kSuccess;
  });
}

uint64_t onesided_request_bytes_done(const onesided_request* request) {
  return request == nullptr ? 0 : request->transfer->bytes_done();
}

uint64_t onesided_request_bytes_total(const onesided_request* request) {
  return request == nullptr ? 0 : request->transfer->bytes_total();
}

onesided_status onesided_request_items(const onesided_request* request, onesided_item_result* results, size_t capacity,
                                       size_t* count) {
  ONESIDED_C_REQUIRE(request);
  if (capacity > 0) ONESIDED_C_REQUIRE(results);
  return guarded(__func__, [&]() -> onesided_status {
    const auto items = request->transfer->items();
    for (std::size_t i = 0; i < std::min(capacity, items.size()); ++i)
      results[i] = {static_cast<onesided_status>(items[i].status), 0, items[i].bytes_done};
    if (count != nullptr) *count = items.size();
    return ONESIDED_SUCCESS;
  });
}

void onesided_request_free(onesided_request* request) { delete request; }

onesided_status onesided_describe(onesided_engine* engine, const onesided_range* ranges, size_t count, void* buffer,
                                  size_t capacity, size_t* needed) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(ranges);
  ONESIDED_C_REQUIRE(needed);
  return guarded(__func__, [&]() -> onesided_status {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> listed;
    listed.reserve(count);
    for (const auto& range : std::span(ranges, count)) listed.emplace_back(range.address, range.nbytes);
    const auto blob = engine->engine->describe(listed);
    if (!blob.ok()) return fail(blob.error());
    *needed = blob->size();
    if (capacity < blob->size() || buffer == nullptr)
      return fail(
          Error(Status::kParamInvalid, fmt::format("onesided_describe: the description has {} bytes, the buffer {}",
                                                   blob->size(), buffer == nullptr ? 0 : capacity)));
    std::memcpy(buffer, blob->data(), blob->size());
    return ONESIDED_SUCCESS;
  });
}

onesided_status onesided_remote_open(const void* bytes, size_t nbytes, onesided_remote** remote) {
  ONESIDED_C_REQUIRE(remote);
  *remote = nullptr;
  ONESIDED_C_REQUIRE(bytes);
  return guarded(__func__, [&]() -> onesided_status {
    auto regions = onesided::RemoteRegions::decode({static_cast<const std::uint8_t*>(bytes), nbytes});
    if (!regions.ok()) return fail(regions.error());
    *remote = new onesided_remote{std::move(regions).value()};
    return ONESIDED_SUCCESS;
  });
}

const char* onesided_remote_engine_id(const onesided_remote* remote) {
  return remote == nullptr ? nullptr : remote->regions.engine_id().c_str();
}

size_t onesided_remote_range_count(const onesided_remote* remote) {
  return remote == nullptr ? 0 : remote->regions.items().size();
}

onesided_status onesided_remote_range(const onesided_remote* remote, size_t index, onesided_range* range) {
  ONESIDED_C_REQUIRE(remote);
  ONESIDED_C_REQUIRE(range);
  return guarded(__func__, [&]() -> onesided_status {
    const auto& items = remote->regions.items();
    if (index >= items.size())
      return fail(
          Error(Status::kParamInvalid, fmt::format("onesided_remote_range: range {} of {}", index, items.size())));
    *range = {items[index].address, items[index].nbytes};
    return ONESIDED_SUCCESS;
  });
}

void onesided_remote_free(onesided_remote* remote) { delete remote; }

}  // extern "C"
