// Notifications for C, one at a time.
#include <string_view>

#include "onesided/node/c_api/objects.h"

using onesided::Error;
using onesided::MutexLock;
using onesided::Status;
using onesided::c_api::fail;
using onesided::c_api::guarded;
using onesided::c_api::outcome;
using onesided::c_api::timeout;

extern "C" {

onesided_status onesided_send_notification(onesided_engine* engine, const char* remote_id, const char* name,
                                           const void* message, size_t nbytes, int64_t timeout_ms) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(remote_id);
  ONESIDED_C_REQUIRE(name);
  if (nbytes > 0) ONESIDED_C_REQUIRE(message);
  return guarded(__func__, [&] {
    const std::string_view bytes =
        nbytes == 0 ? std::string_view() : std::string_view(static_cast<const char*>(message), nbytes);
    return outcome(engine->engine->send_notify(remote_id, name, bytes, timeout(timeout_ms)));
  });
}

onesided_status onesided_wait_notification(onesided_engine* engine, int64_t timeout_ms) {
  ONESIDED_C_REQUIRE(engine);
  return guarded(__func__, [&] {
    {
      MutexLock lock(engine->mutex);
      if (!engine->arrived.empty()) return onesided::c_api::kSuccess;
    }
    return outcome(engine->engine->wait_notifies(timeout(timeout_ms)));
  });
}

onesided_status onesided_take_notification(onesided_engine* engine, onesided_notification** notification) {
  ONESIDED_C_REQUIRE(notification);
  *notification = nullptr;
  ONESIDED_C_REQUIRE(engine);
  return guarded(__func__, [&]() -> onesided_status {
    auto taken = std::make_unique<onesided_notification>();
    MutexLock lock(engine->mutex);
    // Under the lock, so that two threads do not change the order in which notifications came. It does not block.
    auto fresh = engine->engine->get_notifies();
    if (!fresh.ok() && engine->arrived.empty()) return fail(fresh.error());
    if (fresh.ok())
      for (auto& one : *fresh) engine->arrived.push_back(std::move(one));
    if (engine->arrived.empty()) return fail(Error(Status::kNotFound, "no notification has arrived"));
    taken->content = std::move(engine->arrived.front());
    engine->arrived.pop_front();
    *notification = taken.release();
    return ONESIDED_SUCCESS;
  });
}

const char* onesided_notification_name(const onesided_notification* notification) {
  return notification == nullptr ? nullptr : notification->content.name.c_str();
}

const void* onesided_notification_message(const onesided_notification* notification, size_t* nbytes) {
  if (nbytes != nullptr) *nbytes = notification == nullptr ? 0 : notification->content.message.size();
  return notification == nullptr ? nullptr : notification->content.message.data();
}

void onesided_notification_free(onesided_notification* notification) { delete notification; }

}  // extern "C"
