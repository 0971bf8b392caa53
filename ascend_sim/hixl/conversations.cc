#include "conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "onesided/base/log.h"

namespace onesided::hixl_abi {

namespace {

constexpr std::int64_t kIdleMs = 2000;       // an answer's connection is kept this long
constexpr std::int64_t kAnswerMs = 5000;     // to get an answer through
constexpr std::int64_t kLookMs = 250;        // how often a waiting asker looks whether the peer still lives
constexpr std::size_t kMaxQuestions = 4096;  // more than that wait: their askers time out
constexpr std::uint64_t kMaxNotificationBytes = 256ULL << 20;

std::uint64_t tag_of(const Control& message) {
  return std::visit([](const auto& m) { return m.tag; }, message);
}

bool is_question(const Control& message) {
  return std::holds_alternative<Hello>(message) || std::holds_alternative<StageRequest>(message);
}

const std::string& reply_to(const Control& question) {
  if (const auto* hello = std::get_if<Hello>(&question)) return hello->reply_to;
  return std::get<StageRequest>(question).reply_to;
}

}  // namespace

Conversations::Conversations(Engine& engine, BackConnections& connections, std::uint32_t answering_threads,
                             Answer answer)
    : engine_(engine), connections_(connections), answer_(std::move(answer)) {
  threads_.emplace_back([this] { sort_arrivals(); });
  for (std::uint32_t i = 0; i < answering_threads; ++i) threads_.emplace_back([this] { answer_questions(); });
}

Conversations::~Conversations() { stop(); }

std::uint64_t Conversations::new_tag() {
  MutexLock lock(mutex_);
  return next_tag_++;
}

Result<HelloReply> Conversations::ask(const std::string& remote, Hello question, Deadline deadline) {
  question.tag = new_tag();
  question.reply_to = engine_.id();
  ONESIDED_TRY_ASSIGN(answer, exchange(remote, question.tag, question, deadline));
  if (auto* reply = std::get_if<HelloReply>(&answer)) return std::move(*reply);
  return Error(Status::kFailed, fmt::format("{} answered another question than was asked", remote));
}

Result<StageReply> Conversations::ask(const std::string& remote, StageRequest question, Deadline deadline) {
  question.tag = new_tag();
  question.reply_to = engine_.id();
  ONESIDED_TRY_ASSIGN(answer, exchange(remote, question.tag, question, deadline));
  if (auto* reply = std::get_if<StageReply>(&answer)) return std::move(*reply);
  return Error(Status::kFailed, fmt::format("{} answered another question than was asked", remote));
}

Result<Control> Conversations::exchange(const std::string& remote, std::uint64_t tag, const Control& question,
                                        Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return Error(Status::kClosed, "the engine was finalized");
    waiting_.emplace(tag, std::nullopt);
  }
  const int left = deadline.poll_timeout_ms();
  auto sent = engine_.send_notify(remote, kControlName, encode(question), left < 0 ? kAnswerMs : std::max(left, 1));
  Result<Control> answer = sent.ok() ? wait_answer(remote, tag, deadline) : Result<Control>(sent.error());
  MutexLock lock(mutex_);
  waiting_.erase(tag);
  return answer;
}

Result<Control> Conversations::wait_answer(const std::string& remote, std::uint64_t tag, Deadline deadline) {
  MutexLock lock(mutex_);
  while (true) {
    if (stopped_) return Error(Status::kClosed, "the engine was finalized");
    if (auto& answer = waiting_.at(tag)) return std::move(*answer);
    if (deadline.passed())
      return Error(Status::kTimeout, fmt::format("{} is connected but does not answer; is it a HIXL engine?", remote));
    if (changed_.wait(lock, std::min(deadline, Deadline::after_ms(kLookMs)))) continue;
    lock.unlock();
    // A live connection answers ALREADY_CONNECTED; anything else means that the one we asked over is gone.
    const auto look = engine_.connect(remote, 1);
    if (look.status() != Status::kAlreadyConnected && remote != engine_.id())
      return Error(Status::kPeerLost, fmt::format("{} went away before it answered", remote));
    lock.lock();
  }
}

std::vector<Notification> Conversations::take_notifications() {
  MutexLock lock(mutex_);
  notification_bytes_ = 0;
  return std::exchange(notifications_, {});
}

void Conversations::sort_arrivals() {
  bool connections_left = false;
  while (true) {
    const auto arrived = engine_.wait_notifies(connections_left ? std::optional<std::int64_t>(kIdleMs) : std::nullopt);
    if (!arrived && arrived.status() != Status::kTimeout) return;  // closed
    auto notifications = engine_.get_notifies();
    if (!notifications) return;
    for (Notification& notification : *notifications) sort(std::move(notification));
    connections_left = connections_.expire(kIdleMs) || !notifications->empty();
  }
}

void Conversations::sort(Notification notification) {
  if (notification.name != kControlName) {
    const std::uint64_t nbytes = notification.name.size() + notification.message.size() + sizeof(Notification);
    MutexLock lock(mutex_);
    if (notification_bytes_ + nbytes <= kMaxNotificationBytes) {
      notification_bytes_ += nbytes;
      notifications_.push_back(std::move(notification));
      return;
    }
    lock.unlock();
    log_line(LogLevel::kError, "hixl: a notification was dropped: 256 MiB of them wait for GetNotifies()");
    return;
  }
  auto message = decode(notification.message);
  if (!message) {
    log_line(LogLevel::kWarn, "hixl: " + message.error().text());
    return;
  }
  MutexLock lock(mutex_);
  if (is_question(*message)) {
    if (questions_.size() < kMaxQuestions) questions_.push_back(std::move(*message));
  } else if (const auto found = waiting_.find(tag_of(*message)); found != waiting_.end() && !found->second) {
    found->second = std::move(*message);
  }
  changed_.notify_all();
}

void Conversations::answer_questions() {
  while (true) {
    Control question;
    {
      MutexLock lock(mutex_);
      while (questions_.empty() && !stopped_) changed_.wait(lock);
      if (stopped_) return;
      question = std::move(questions_.front());
      questions_.pop_front();
    }
    const std::string& asker = reply_to(question);
    // The requester may have disconnected, or its deadline may have passed: then no answer is needed.
    if (!connections_.acquire(asker, Deadline::after_ms(kAnswerMs))) continue;
    const Control answer = answer_(question);
    if (const auto sent = engine_.send_notify(asker, kControlName, encode(answer), kAnswerMs); !sent)
      log_line(LogLevel::kInfo, fmt::format("hixl: an answer did not reach {}: {}", asker, sent.error().to_string()));
    connections_.release(asker);
  }
}

void Conversations::refuse() {
  MutexLock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Conversations::stop() {
  refuse();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace onesided::hixl_abi
