#include "onesided/transport/ascend/hixl_client.h"

#include <fmt/format.h>

#include <utility>

namespace onesided::ascend {

namespace {

// Makes a context this thread's current one for a scope, then restores the previous one. Confined to one thread.
class ContextScope {
 public:
  ContextScope(const ContextFunctions& functions, void* context) : functions_(functions) {
    if (!context) return;
    void* now = nullptr;
    if (functions_.get_current_context(&now) != 0) now = nullptr;
    if (now == context) return;
    // A thread that had no context keeps this one, because the runtime has no call to set none.
    if (functions_.set_current_context(context) == 0) restore_ = now;
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    if (restore_) (void)functions_.set_current_context(restore_);
  }

 private:
  const ContextFunctions& functions_;
  void* restore_ = nullptr;
};

}  // namespace

HixlClient::HixlClient(std::shared_ptr<const HixlLibrary> library, std::string local_engine)
    : library_(std::move(library)), local_engine_(std::move(local_engine)) {
  library_->functions().construct(object_);
}

HixlClient::~HixlClient() {
  const ContextScope scope(library_->context(), context_);
  library_->functions().finalize(object_);
  library_->functions().destroy(object_);
}

Result<std::unique_ptr<HixlClient>> HixlClient::create(std::shared_ptr<const HixlLibrary> library,
                                                       const std::string& local_engine,
                                                       const std::map<std::string, std::string>& options) {
  std::unique_ptr<HixlClient> client(new HixlClient(std::move(library), local_engine));
  const ContextFunctions& context = client->library_->context();
  if (context.get_current_context && context.get_current_context(&client->context_) != 0) client->context_ = nullptr;
  const HixlFunctions& f = client->library_->functions();
  const VendorString name = client->library_->make_string(local_engine);
  const VendorOptions vendor_options = client->library_->make_options(options);
  const std::uint32_t code = f.initialize(client->object_, name, vendor_options);
  if (code != 0) return client->failure("Initialize", local_engine, code);
  return client;
}

Error HixlClient::failure(const char* name, const std::string& detail, std::uint32_t code) const {
  const auto known = static_cast<Status>(code);
  const Status status = status_name(known) == "UNKNOWN" || known == Status::kSuccess ? Status::kFailed : known;
  const char* words = library_->context().get_recent_error ? library_->context().get_recent_error() : nullptr;
  return {status, fmt::format("{}({}): HIXL answered {} {}{}{}", name, detail, code, status_name(known),
                              words && *words ? ": " : "", words ? words : "")};
}

template <typename Call>
std::uint32_t HixlClient::run(Call&& call) {
  const ContextScope scope(library_->context(), context_);
  return call(library_->functions());
}

Result<void*> HixlClient::register_mem(std::uint64_t address, std::uint64_t nbytes, MemType type) {
  VendorMemory memory;
  memory.address = address;
  memory.nbytes = nbytes;
  const VendorMemType vendor_type = type == MemType::kDevice ? VendorMemType::kDevice : VendorMemType::kHost;
  void* handle = nullptr;
  const auto code = run([&](const HixlFunctions& f) { return f.register_mem(object_, memory, vendor_type, handle); });
  if (code != 0) return failure("RegisterMem", fmt::format("{:#x}, {} bytes", address, nbytes), code);
  return handle;
}

Result<void> HixlClient::deregister_mem(void* handle) {
  const auto code = run([&](const HixlFunctions& f) { return f.deregister_mem(object_, handle); });
  if (code != 0) return failure("DeregisterMem", fmt::format("{}", handle), code);
  return {};
}

Result<void> HixlClient::connect(const std::string& remote, std::int32_t timeout_ms) {
  const VendorString name = library_->make_string(remote);
  const auto code = run([&](const HixlFunctions& f) { return f.connect(object_, name, timeout_ms); });
  if (code != 0) return failure("Connect", remote, code);
  return {};
}

Result<void> HixlClient::disconnect(const std::string& remote, std::int32_t timeout_ms) {
  const VendorString name = library_->make_string(remote);
  const auto code = run([&](const HixlFunctions& f) { return f.disconnect(object_, name, timeout_ms); });
  if (code != 0) return failure("Disconnect", remote, code);
  return {};
}

Result<void> HixlClient::transfer_sync(const std::string& remote, VendorOp op, const std::vector<VendorItem>& items,
                                       std::int32_t timeout_ms) {
  const VendorString name = library_->make_string(remote);
  const auto code = run([&](const HixlFunctions& f) { return f.transfer_sync(object_, name, op, items, timeout_ms); });
  if (code != 0) return failure("TransferSync", remote, code);
  return {};
}

Result<void*> HixlClient::transfer_async(const std::string& remote, VendorOp op, const std::vector<VendorItem>& items) {
  const VendorString name = library_->make_string(remote);
  const VendorTransferArgs args;
  void* request = nullptr;
  const auto code =
      run([&](const HixlFunctions& f) { return f.transfer_async(object_, name, op, items, args, request); });
  if (code != 0) return failure("TransferAsync", remote, code);
  return request;
}

Result<VendorTransferStatus> HixlClient::poll(void* request) {
  VendorTransferStatus status = VendorTransferStatus::kFailed;
  const auto code = run([&](const HixlFunctions& f) { return f.get_transfer_status(object_, request, status); });
  if (code != 0) return failure("GetTransferStatus", fmt::format("{}", request), code);
  switch (status) {
    case VendorTransferStatus::kWaiting:
    case VendorTransferStatus::kCompleted:
    case VendorTransferStatus::kTimeout:
    case VendorTransferStatus::kFailed: return status;
  }
  return VendorTransferStatus::kFailed;
}

}  // namespace onesided::ascend
