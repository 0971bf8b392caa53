// Questions and answers between vendor-style engines travel as notifications of our engine, among those of the
// program. One thread sorts them; answering may wait for a peer, so that is done by others.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "back_connections.h"
#include "control.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/engine.h"

namespace onesided::hixl_abi {

// Internally synchronized. What the constructor is given outlives it.
class Conversations {
 public:
  // Makes the answer (HelloReply, StageReply) to a question. Runs on the answering threads, several at once.
  using Answer = std::function<Control(const Control& question)>;

  Conversations(Engine& engine, BackConnections& connections, std::uint32_t answering_threads, Answer answer);
  // As stop().
  ~Conversations();

  // Sends the question to a connected remote and waits for the answer; tag and reply_to are filled in here. TIMEOUT;
  // PEER_LOST; CLOSED: stopped.
  Result<HelloReply> ask(const std::string& remote, Hello question, Deadline deadline);
  Result<StageReply> ask(const std::string& remote, StageRequest question, Deadline deadline);

  // The program's notifications that have come, oldest first; does not block.
  std::vector<Notification> take_notifications();

  // Ends all waiting, joins all threads. The engine must have been closed before. Idempotent.
  void stop();
  // The first half of stop(): ends all waits for answers.
  void refuse();

 private:
  Result<Control> exchange(const std::string& remote, std::uint64_t tag, const Control& question, Deadline deadline);
  Result<Control> wait_answer(const std::string& remote, std::uint64_t tag, Deadline deadline);
  std::uint64_t new_tag();
  void sort_arrivals();
  void sort(Notification notification);
  void answer_questions();

  Engine& engine_;
  BackConnections& connections_;
  const Answer answer_;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::uint64_t next_tag_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, std::optional<Control>> waiting_ ONESIDED_GUARDED_BY(mutex_);  // by tag
  std::deque<Control> questions_ ONESIDED_GUARDED_BY(mutex_);
  std::vector<Notification> notifications_ ONESIDED_GUARDED_BY(mutex_);  // the program's
  std::uint64_t notification_bytes_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;  // set by the constructor, joined by stop()
};

}  // namespace onesided::hixl_abi
