// Programs built for Ascend call the engine through C++ classes of the vendor's libraries. These declarations give
// our own engine the same names, mangling, sizes and calling conventions, so that such a program finds it unchanged.
// They are written from the public API's facts and from the symbols that the Mooncake wheel asks for; no vendor header
// is included or copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define ONESIDED_ABI __attribute__((visibility("default")))

namespace ge {

// libmetadef.so. A value: an immutable shared string, or none. Callers copy and destroy it with inline code of their
// own, so it must stay one std::shared_ptr. The text is only ever touched inside our library: both of libstdc++'s
// std::string layouts may be on the other side.
class ONESIDED_ABI AscendString {
 public:
  AscendString() = default;
  AscendString(const char* text);  // NOLINT: implicit, as programs rely on; null gives the empty string
  AscendString(const char* text, std::size_t length);

  const char* GetString() const;  // "" when none
  std::size_t GetLength() const;
  bool operator<(const AscendString& other) const;
  bool operator>(const AscendString& other) const;
  bool operator<=(const AscendString& other) const;
  bool operator>=(const AscendString& other) const;
  bool operator==(const AscendString& other) const;
  bool operator!=(const AscendString& other) const;

 private:
  std::shared_ptr<std::string> text_;
};
static_assert(sizeof(AscendString) == 16 && alignof(AscendString) == 8);

}  // namespace ge

namespace onesided::hixl_abi {
class VendorEngine;
}  // namespace onesided::hixl_abi

namespace adxl {

using AscendString = ge::AscendString;
using Status = std::uint32_t;
using MemHandle = void*;
using TransferReq = void*;

enum MemType { MEM_DEVICE, MEM_HOST };
enum TransferOp { READ, WRITE };
enum class TransferStatus { WAITING, COMPLETED, TIMEOUT, FAILED };
enum FeatureType { AUTO_CONNECT, CLIENT_SERVER_COMM };

struct MemDesc {
  std::uintptr_t addr;
  std::size_t len;
  std::uint8_t reserved[128] = {};
};
struct TransferOpDesc {
  std::uintptr_t local_addr;
  std::uintptr_t remote_addr;
  std::size_t len;
};
struct TransferArgs {
  std::uint8_t reserved[128] = {};
};
static_assert(sizeof(MemDesc) == 144 && sizeof(TransferOpDesc) == 24 && sizeof(TransferArgs) == 128);
static_assert(sizeof(MemType) == 4 && sizeof(TransferOp) == 4 && sizeof(TransferStatus) == 4 &&
              sizeof(FeatureType) == 4);

// libllm_datadist.so. What each call does and answers: vendor_engine.h.
class ONESIDED_ABI AdxlEngine {
 public:
  AdxlEngine();
  ~AdxlEngine();
  AdxlEngine(const AdxlEngine&) = delete;
  AdxlEngine& operator=(const AdxlEngine&) = delete;

  Status Initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options);
  void Finalize();
  Status RegisterMem(const MemDesc& mem, MemType type, MemHandle& handle);
  Status DeregisterMem(MemHandle handle);
  Status Connect(const AscendString& remote_engine, std::int32_t timeout_ms = 1000);
  Status Disconnect(const AscendString& remote_engine, std::int32_t timeout_ms = 1000);
  Status TransferSync(const AscendString& remote_engine, TransferOp op, const std::vector<TransferOpDesc>& items,
                      std::int32_t timeout_ms = 1000);
  Status TransferAsync(const AscendString& remote_engine, TransferOp op, const std::vector<TransferOpDesc>& items,
                       const TransferArgs& args, TransferReq& request);
  Status GetTransferStatus(const TransferReq& request, TransferStatus& status);

  static Status MallocMem(MemType type, std::size_t nbytes, void** address);
  static Status FreeMem(void* address);
  static Status GetCapability(FeatureType feature, std::int32_t& value);

 private:
  std::unique_ptr<onesided::hixl_abi::VendorEngine> engine_;
};
static_assert(sizeof(AdxlEngine) == 8 && alignof(AdxlEngine) == 8);

}  // namespace adxl

namespace hixl {

using AscendString = ge::AscendString;
using Status = std::uint32_t;
using MemHandle = void*;
using TransferReq = void*;

enum MemType { MEM_DEVICE, MEM_HOST };
enum TransferOp { READ, WRITE };
enum class TransferStatus { WAITING, COMPLETED, TIMEOUT, FAILED };
enum class AsyncConnectStatus {
  NOT_CONNECT,
  CONNECT_PENDING,
  CONNECTING,
  CONNECTED,
  CONNECT_FAILED,
  DISCONNECT_PENDING,
  DISCONNECTING
};

struct MemDesc {
  std::uintptr_t addr;
  std::size_t len;
  std::uint8_t reserved[128] = {};
};
struct TransferOpDesc {
  std::uintptr_t local_addr;
  std::uintptr_t remote_addr;
  std::size_t len;
};
struct TransferArgs {
  const void* user_data = nullptr;
  std::uint8_t reserved[120] = {};
};
struct NotifyDesc {
  AscendString name;
  AscendString notify_msg;
};
static_assert(sizeof(MemDesc) == 144 && sizeof(TransferOpDesc) == 24 && sizeof(TransferArgs) == 128);
static_assert(sizeof(NotifyDesc) == 32 && sizeof(AsyncConnectStatus) == 4);

// libcann_hixl.so. What each call does and answers: vendor_engine.h.
class ONESIDED_ABI Hixl {
 public:
  Hixl();
  ~Hixl();
  Hixl(const Hixl&) = delete;
  Hixl& operator=(const Hixl&) = delete;

  Status Initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options);
  void Finalize();
  Status RegisterMem(const MemDesc& mem, MemType type, MemHandle& handle);
  Status DeregisterMem(MemHandle handle);
  Status Connect(const AscendString& remote_engine, std::int32_t timeout_ms = 1000);
  Status Disconnect(const AscendString& remote_engine, std::int32_t timeout_ms = 1000);
  Status ConnectAsync(const AscendString& remote_engine, std::int32_t timeout_ms = 1000);
  Status DisconnectAsync(const AscendString& remote_engine, std::int32_t timeout_ms = 1000);
  Status GetAsyncConnectStatus(const AscendString& remote_engine, AsyncConnectStatus& status);
  Status GetAsyncConnectStatus(std::map<AscendString, AsyncConnectStatus>& statuses);
  Status TransferSync(const AscendString& remote_engine, TransferOp op, const std::vector<TransferOpDesc>& items,
                      std::int32_t timeout_ms = 1000);
  Status TransferAsync(const AscendString& remote_engine, TransferOp op, const std::vector<TransferOpDesc>& items,
                       const TransferArgs& args, TransferReq& request);
  Status GetTransferStatus(const TransferReq& request, TransferStatus& status);
  Status SendNotify(const AscendString& remote_engine, const NotifyDesc& notify, std::int32_t timeout_ms = 1000);
  Status GetNotifies(std::vector<NotifyDesc>& notifies);

 private:
  std::unique_ptr<onesided::hixl_abi::VendorEngine> engine_;
};
static_assert(sizeof(Hixl) == 8 && alignof(Hixl) == 8);

}  // namespace hixl
