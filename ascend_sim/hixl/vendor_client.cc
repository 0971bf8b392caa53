// A vendor-style program small enough for Python: it does through the vendor's symbols what an Ascend program
// does, and shows what that program would see, the code and the driver's words. It is linked like any such program:
// whichever libllm_datadist.so the search path gives is the one that answers, the vendor's or ours.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "vendor_abi.h"

#define ONESIDED_CLIENT_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// One engine and the words that its last failing call left. Confined to one thread at a time.
struct Client {
  adxl::AdxlEngine engine;
  std::string words;
};

using Ask = const char* (*)();

// The runtime keeps the words of a thread's last failure until they are asked for: what came before is not ours.
void forget_older_words() {
  if (const auto ask_runtime = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "aclGetRecentErrMsg"))) (void)ask_runtime();
}

// Keeps what the runtime says about a failure; asked at once, on the thread that failed, as the API demands.
std::uint32_t told(Client* client, std::uint32_t code) {
  client->words.clear();
  if (code == 0) return code;
  const auto ask_runtime = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "aclGetRecentErrMsg"));
  const char* words = ask_runtime ? ask_runtime() : nullptr;
  client->words = words ? words : "";
  // Our own library also knows what the other side's driver said; the vendor's has no such call.
  const auto ask_engine = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "onesided_hixl_last_error"));
  const char* more = ask_engine ? ask_engine() : nullptr;
  if (more && *more && client->words.find(more) == std::string::npos)
    client->words += (client->words.empty() ? "" : "\n") + std::string(more);
  return code;
}

}  // namespace

// Null: no memory, or the vendor's constructor failed.
ONESIDED_CLIENT_EXPORT void* onesided_vendor_open() {
  try {
    return new Client;
  } catch (...) {
    return nullptr;
  }
}

ONESIDED_CLIENT_EXPORT void onesided_vendor_close(void* client) { delete static_cast<Client*>(client); }

// `options`: name, value, name, value, ..., null.
ONESIDED_CLIENT_EXPORT std::uint32_t onesided_vendor_initialize(void* self, const char* local_engine,
                                                                const char* const* options) {
  auto* client = static_cast<Client*>(self);
  forget_older_words();
  std::map<ge::AscendString, ge::AscendString> map;
  for (; options && options[0] && options[1]; options += 2) map[options[0]] = options[1];
  return told(client, client->engine.Initialize(local_engine, map));
}

ONESIDED_CLIENT_EXPORT void onesided_vendor_finalize(void* self) { static_cast<Client*>(self)->engine.Finalize(); }

ONESIDED_CLIENT_EXPORT std::uint32_t onesided_vendor_register(void* self, std::uint64_t address, std::uint64_t nbytes,
                                                              std::int32_t type, void** handle) {
  auto* client = static_cast<Client*>(self);
  forget_older_words();
  adxl::MemDesc memory{};
  memory.addr = address;
  memory.len = nbytes;
  return told(client, client->engine.RegisterMem(memory, static_cast<adxl::MemType>(type), *handle));
}

ONESIDED_CLIENT_EXPORT std::uint32_t onesided_vendor_deregister(void* self, void* handle) {
  auto* client = static_cast<Client*>(self);
  forget_older_words();
  return told(client, client->engine.DeregisterMem(handle));
}

ONESIDED_CLIENT_EXPORT std::uint32_t onesided_vendor_connect(void* self, const char* remote, std::int32_t timeout_ms) {
  auto* client = static_cast<Client*>(self);
  forget_older_words();
  return told(client, client->engine.Connect(remote, timeout_ms));
}

ONESIDED_CLIENT_EXPORT std::uint32_t onesided_vendor_disconnect(void* self, const char* remote,
                                                                std::int32_t timeout_ms) {
  auto* client = static_cast<Client*>(self);
  forget_older_words();
  return told(client, client->engine.Disconnect(remote, timeout_ms));
}

// `triples`: local address, remote address, bytes; `count` times.
ONESIDED_CLIENT_EXPORT std::uint32_t onesided_vendor_transfer(void* self, const char* remote, std::int32_t op,
                                                              const std::uint64_t* triples, std::size_t count,
                                                              std::int32_t timeout_ms) {
  auto* client = static_cast<Client*>(self);
  forget_older_words();
  std::vector<adxl::TransferOpDesc> items(count);
  for (std::size_t i = 0; i < count; ++i) items[i] = {triples[3 * i], triples[3 * i + 1], triples[3 * i + 2]};
  return told(client, client->engine.TransferSync(remote, static_cast<adxl::TransferOp>(op), items, timeout_ms));
}

// The words that the last failing call left; "" after a success. Valid until the next call.
ONESIDED_CLIENT_EXPORT const char* onesided_vendor_words(void* self) {
  return static_cast<Client*>(self)->words.c_str();
}
