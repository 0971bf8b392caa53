// libllm_datadist.so: adxl::AdxlEngine, the name under which Mooncake and others find the engine.
#include <type_traits>

#include "vendor_arguments.h"
#include "vendor_engine.h"

namespace adxl {

using onesided::hixl_abi::as_code;
using onesided::hixl_abi::as_direction;
using onesided::hixl_abi::as_handle;
using onesided::hixl_abi::as_items;
using onesided::hixl_abi::as_number;
using onesided::hixl_abi::as_options;
using onesided::hixl_abi::as_segment;

AdxlEngine::AdxlEngine() : engine_(std::make_unique<onesided::hixl_abi::VendorEngine>()) {}

AdxlEngine::~AdxlEngine() = default;

Status AdxlEngine::Initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options) {
  return as_code(engine_->initialize(local_engine.GetString(), as_options(options)));
}

void AdxlEngine::Finalize() { engine_->finalize(); }

Status AdxlEngine::RegisterMem(const MemDesc& mem, MemType type, MemHandle& handle) {
  const auto segment = as_segment(mem, type);
  if (!segment) return as_code(segment.status());
  std::uint64_t number = 0;
  const auto status = engine_->register_mem(*segment, number);
  if (status == onesided::Status::kSuccess) handle = as_handle(number);
  return as_code(status);
}

Status AdxlEngine::DeregisterMem(MemHandle handle) { return as_code(engine_->deregister_mem(as_number(handle))); }

Status AdxlEngine::Connect(const AscendString& remote_engine, std::int32_t timeout_ms) {
  return as_code(engine_->connect(remote_engine.GetString(), timeout_ms));
}

Status AdxlEngine::Disconnect(const AscendString& remote_engine, std::int32_t timeout_ms) {
  return as_code(engine_->disconnect(remote_engine.GetString(), timeout_ms));
}

Status AdxlEngine::TransferSync(const AscendString& remote_engine, TransferOp op,
                                const std::vector<TransferOpDesc>& items, std::int32_t timeout_ms) {
  const auto direction = as_direction(op);
  if (!direction) return as_code(direction.status());
  return as_code(engine_->transfer_sync(remote_engine.GetString(), *direction, as_items(items), timeout_ms));
}

Status AdxlEngine::TransferAsync(const AscendString& remote_engine, TransferOp op,
                                 const std::vector<TransferOpDesc>& items, const TransferArgs& /*args*/,
                                 TransferReq& request) {
  const auto direction = as_direction(op);
  if (!direction) return as_code(direction.status());
  std::uint64_t number = 0;
  const auto status = engine_->transfer_async(remote_engine.GetString(), *direction, as_items(items), number);
  if (status == onesided::Status::kSuccess) request = as_handle(number);
  return as_code(status);
}

Status AdxlEngine::GetTransferStatus(const TransferReq& request, TransferStatus& status) {
  auto progress = onesided::hixl_abi::Progress::kFailed;
  const auto answer = engine_->transfer_status(as_number(request), progress);
  status = static_cast<TransferStatus>(progress);
  return as_code(answer);
}

Status AdxlEngine::MallocMem(MemType type, std::size_t nbytes, void** address) {
  const auto known = onesided::hixl_abi::as_mem_type(static_cast<int>(type));
  if (!known) return as_code(known.status());
  return as_code(onesided::hixl_abi::malloc_mem(*known, nbytes, address));
}

Status AdxlEngine::FreeMem(void* address) { return as_code(onesided::hixl_abi::free_mem(address)); }

Status AdxlEngine::GetCapability(FeatureType feature, std::int32_t& value) {
  switch (feature) {
    case AUTO_CONNECT: value = 1; return as_code(onesided::Status::kSuccess);
    case CLIENT_SERVER_COMM:  // needs a description of the server's network cards, which the simulator has not
      value = 0;
      return as_code(onesided::Status::kSuccess);
  }
  return as_code(onesided::Status::kUnsupported);
}

}  // namespace adxl

extern "C" ONESIDED_ABI const char* onesided_hixl_last_error() { return onesided::hixl_abi::last_error(); }
