// A library with hixl::Hixl's symbols that does as a test tells it: never completes, fails, forgets. The bytes it
// moves stay in this process.
#include "fake_hixl.h"

#include <cstring>
#include <map>
#include <memory>

extern "C" {
FakeHixlScript fake_hixl_script;
}

namespace ge {
class AscendString {
 public:
  AscendString() = default;
  AscendString(const char* text);
  const char* GetString() const;
  bool operator<(const AscendString& other) const;

 private:
  std::shared_ptr<std::string> text_;
};
AscendString::AscendString(const char* text) : text_(std::make_shared<std::string>(text)) {}
const char* AscendString::GetString() const { return text_ ? text_->c_str() : ""; }
bool AscendString::operator<(const AscendString& other) const { return *text_ < *other.text_; }
}  // namespace ge

namespace hixl {

enum MemType { MEM_DEVICE, MEM_HOST };
enum TransferOp { READ, WRITE };
enum class TransferStatus { WAITING, COMPLETED, TIMEOUT, FAILED };
struct MemDesc {
  std::uintptr_t addr;
  std::size_t len;
  std::uint8_t reserved[128];
};
struct TransferOpDesc {
  std::uintptr_t local_addr;
  std::uintptr_t remote_addr;
  std::size_t len;
};
struct TransferArgs {
  std::uint8_t reserved[128];
};
using Status = std::uint32_t;

class Hixl {
 public:
  Hixl();
  ~Hixl();
  Status Initialize(const ge::AscendString& name, const std::map<ge::AscendString, ge::AscendString>& options);
  void Finalize();
  Status RegisterMem(const MemDesc& memory, MemType type, void*& handle);
  Status DeregisterMem(void* handle);
  Status Connect(const ge::AscendString& remote, std::int32_t timeout_ms);
  Status Disconnect(const ge::AscendString& remote, std::int32_t timeout_ms);
  Status TransferSync(const ge::AscendString& remote, TransferOp op, const std::vector<TransferOpDesc>& items,
                      std::int32_t timeout_ms);
  Status TransferAsync(const ge::AscendString& remote, TransferOp op, const std::vector<TransferOpDesc>& items,
                       const TransferArgs& args, void*& request);
  Status GetTransferStatus(void* const& request, TransferStatus& status);

 private:
  std::map<std::uintptr_t, int>* requests_;  // polls left of each
};
static_assert(sizeof(Hixl) == 8);

namespace {
std::atomic<std::uintptr_t> next_handle{1};
}

Hixl::Hixl() : requests_(new std::map<std::uintptr_t, int>) {}
Hixl::~Hixl() { delete requests_; }

Status Hixl::Initialize(const ge::AscendString&, const std::map<ge::AscendString, ge::AscendString>& options) {
  const auto found = options.find("BufferPool");
  return found != options.end() && std::strcmp(found->second.GetString(), "0:0") == 0 ? 0 : 103900;
}
void Hixl::Finalize() { fake_hixl_script.note("finalize"); }

Status Hixl::RegisterMem(const MemDesc&, MemType type, void*& handle) {
  fake_hixl_script.note(type == MEM_DEVICE ? "register device" : "register host");
  handle = reinterpret_cast<void*>(next_handle++);
  return fake_hixl_script.register_code;
}
Status Hixl::DeregisterMem(void*) {
  fake_hixl_script.note("deregister");
  return 0;
}
Status Hixl::Connect(const ge::AscendString& remote, std::int32_t) {
  fake_hixl_script.note(std::string("connect ") + remote.GetString());
  return fake_hixl_script.connect_code;
}
Status Hixl::Disconnect(const ge::AscendString& remote, std::int32_t) {
  fake_hixl_script.note(std::string("disconnect ") + remote.GetString());
  requests_->clear();
  return 0;
}
Status Hixl::TransferSync(const ge::AscendString&, TransferOp, const std::vector<TransferOpDesc>&, std::int32_t) {
  return 103905;
}
Status Hixl::TransferAsync(const ge::AscendString&, TransferOp op, const std::vector<TransferOpDesc>& items,
                           const TransferArgs&, void*& request) {
  fake_hixl_script.note("transfer " + std::to_string(items.size()));
  if (fake_hixl_script.transfer_code != 0) return fake_hixl_script.transfer_code;
  const std::uintptr_t handle = next_handle++;
  (*requests_)[handle] = fake_hixl_script.polls_to_complete;
  request = reinterpret_cast<void*>(handle);
  if (!fake_hixl_script.move_bytes) return 0;
  for (const auto& item : items) {
    void* local = reinterpret_cast<void*>(item.local_addr);
    void* remote = reinterpret_cast<void*>(item.remote_addr);
    std::memmove(op == READ ? local : remote, op == READ ? remote : local, item.len);
  }
  return 0;
}
Status Hixl::GetTransferStatus(void* const& request, TransferStatus& status) {
  const auto found = requests_->find(reinterpret_cast<std::uintptr_t>(request));
  if (found == requests_->end()) return 103900;
  if (found->second != 0) {
    if (found->second > 0) --found->second;
    status = TransferStatus::WAITING;
    return 0;
  }
  requests_->erase(found);
  status = static_cast<TransferStatus>(fake_hixl_script.final_status.load());
  return 0;
}

}  // namespace hixl
