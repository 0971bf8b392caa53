// libcann_hixl.so: hixl::Hixl, the vendor's newer name for the engine, and the one our `ascend` transport loads.
#include "vendor_arguments.h"
#include "vendor_engine.h"

namespace hixl {

using onesided::hixl_abi::as_code;
using onesided::hixl_abi::as_direction;
using onesided::hixl_abi::as_handle;
using onesided::hixl_abi::as_items;
using onesided::hixl_abi::as_number;
using onesided::hixl_abi::as_options;
using onesided::hixl_abi::as_segment;
using onesided::hixl_abi::AsyncConnects;
using onesided::hixl_abi::ConnectState;

Hixl::Hixl() : engine_(std::make_unique<onesided::hixl_abi::VendorEngine>()) {}

Hixl::~Hixl() = default;

Status Hixl::Initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options) {
  return as_code(engine_->initialize(local_engine.GetString(), as_options(options)));
}

void Hixl::Finalize() { engine_->finalize(); }

Status Hixl::RegisterMem(const MemDesc& mem, MemType type, MemHandle& handle) {
  const auto segment = as_segment(mem, type);
  if (!segment) return as_code(segment.status());
  std::uint64_t number = 0;
  const auto status = engine_->register_mem(*segment, number);
  if (status == onesided::Status::kSuccess) handle = as_handle(number);
  return as_code(status);
}

Status Hixl::DeregisterMem(MemHandle handle) { return as_code(engine_->deregister_mem(as_number(handle))); }

Status Hixl::Connect(const AscendString& remote_engine, std::int32_t timeout_ms) {
  return as_code(engine_->connect(remote_engine.GetString(), timeout_ms));
}

Status Hixl::Disconnect(const AscendString& remote_engine, std::int32_t timeout_ms) {
  return as_code(engine_->disconnect(remote_engine.GetString(), timeout_ms));
}

Status Hixl::ConnectAsync(const AscendString& remote_engine, std::int32_t timeout_ms) {
  return as_code(engine_->connect_async(AsyncConnects::Job::kConnect, remote_engine.GetString(), timeout_ms));
}

Status Hixl::DisconnectAsync(const AscendString& remote_engine, std::int32_t timeout_ms) {
  return as_code(engine_->connect_async(AsyncConnects::Job::kDisconnect, remote_engine.GetString(), timeout_ms));
}

Status Hixl::GetAsyncConnectStatus(const AscendString& remote_engine, AsyncConnectStatus& status) {
  ConnectState state = ConnectState::kNotConnected;
  const auto answer = engine_->async_connect_state(remote_engine.GetString(), state);
  status = static_cast<AsyncConnectStatus>(state);
  return as_code(answer);
}

Status Hixl::GetAsyncConnectStatus(std::map<AscendString, AsyncConnectStatus>& statuses) {
  std::map<std::string, ConnectState> states;
  const auto answer = engine_->async_connect_states(states);
  statuses.clear();
  for (const auto& [remote, state] : states) statuses[remote.c_str()] = static_cast<AsyncConnectStatus>(state);
  return as_code(answer);
}

Status Hixl::TransferSync(const AscendString& remote_engine, TransferOp op, const std::vector<TransferOpDesc>& items,
                          std::int32_t timeout_ms) {
  const auto direction = as_direction(op);
  if (!direction) return as_code(direction.status());
  return as_code(engine_->transfer_sync(remote_engine.GetString(), *direction, as_items(items), timeout_ms));
}

Status Hixl::TransferAsync(const AscendString& remote_engine, TransferOp op, const std::vector<TransferOpDesc>& items,
                           const TransferArgs& /*args*/, TransferReq& request) {
  const auto direction = as_direction(op);
  if (!direction) return as_code(direction.status());
  std::uint64_t number = 0;
  const auto status = engine_->transfer_async(remote_engine.GetString(), *direction, as_items(items), number);
  if (status == onesided::Status::kSuccess) request = as_handle(number);
  return as_code(status);
}

Status Hixl::GetTransferStatus(const TransferReq& request, TransferStatus& status) {
  auto progress = onesided::hixl_abi::Progress::kFailed;
  const auto answer = engine_->transfer_status(as_number(request), progress);
  status = static_cast<TransferStatus>(progress);
  return as_code(answer);
}

Status Hixl::SendNotify(const AscendString& remote_engine, const NotifyDesc& notify, std::int32_t timeout_ms) {
  const onesided::Notification notification{{notify.name.GetString(), notify.name.GetLength()},
                                            {notify.notify_msg.GetString(), notify.notify_msg.GetLength()}};
  return as_code(engine_->send_notify(remote_engine.GetString(), notification, timeout_ms));
}

Status Hixl::GetNotifies(std::vector<NotifyDesc>& notifies) {
  std::vector<onesided::Notification> arrived;
  const auto answer = engine_->get_notifies(arrived);
  notifies.clear();
  for (const onesided::Notification& n : arrived)
    notifies.push_back({AscendString(n.name.data(), n.name.size()), AscendString(n.message.data(), n.message.size())});
  return as_code(answer);
}

}  // namespace hixl
