// The ranks of one communicator, seen from one of them: their pages, waiting for them, and how the group fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ascend_sim/hccl/abi.h"
#include "ascend_sim/hccl/peer_files.h"
#include "ascend_sim/hccl/rank_page.h"
#include "ascend_sim/hccl/registrations.h"
#include "ascend_sim/hccl/rendezvous.h"
#include "ascend_sim/hccl/runtime_link.h"
#include "onesided/base/fd.h"

namespace onesided::sim::hccl {

// The limits of one piece of work that waits. A value; good while the work runs.
struct Patience {
  Deadline deadline;
  const StopProbe& stop;
};

// One rank's view of a communicator. Internally synchronized. What it writes to its own page, it also tells the ranks
// on other hosts.
class Communicator {
 public:
  struct Options {
    std::string name;                     // empty: made from the meeting
    std::int64_t exec_timeout_ms = 0;     // of each operation
    std::int64_t connect_timeout_ms = 0;  // of join()
  };

  // Meets the other ranks. Errors as meet(), or those of mapping their pages.
  static Result<std::shared_ptr<Communicator>> join(Switchboard& board, const Meeting& meeting, std::uint32_t rank,
                                                    const Options& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(members_.size()); }
  const std::string& name() const { return options_.name; }
  const Options& options() const { return options_; }
  const Member& member(std::uint32_t rank) const { return members_[rank]; }
  Switchboard& board() const { return board_; }
  std::uint64_t instance() const { return instance_; }
  Deadline op_deadline() const { return Deadline::after_ms(options_.exec_timeout_ms); }
  // Its memory can be mapped here.
  bool on_this_host(std::uint32_t rank) const { return members_[rank].host == members_[rank_].host; }
  bool in_this_process(std::uint32_t rank) const;

  RankPage page(std::uint32_t rank) const { return pages_[rank]; }
  RankPage own() const { return pages_[rank_]; }

  // Changes of this rank's page; each is seen by all ranks, or by the one that it is for.
  void publish(std::uint64_t op, const OpRecord& record, std::span<const Part> parts, const void* payload);
  void progress(std::uint64_t op, std::uint64_t nbytes);
  void finish(std::uint64_t op);
  void send(std::uint32_t peer, std::uint64_t number, const OpRecord& record, const void* payload);
  void received(std::uint32_t peer, std::uint64_t number, bool refused);

  // Blocks until ready() or an error: PEER_LOST: `peer` has died or left. PARAM_INVALID: it has found a mismatch.
  // TIMEOUT, CANCELLED (the stream was aborted or the communicator destroyed). `ready` looks at the page of `peer`.
  // Gives up after `at_most_ms` where that is not negative, with success.
  Result<void> wait(std::uint32_t peer, const Patience& patience, const std::function<bool()>& ready,
                    std::int64_t at_most_ms = -1);
  // Blocks until this rank's operations before `op` have ended.
  Result<void> wait_turn(std::uint64_t op, const Patience& patience);
  void ended(std::uint64_t op);

  // The first failure counts; the other ranks see it. Nothing can be done with the communicator afterwards.
  void fail(const Error& error);
  // 0 while all is well.
  Code failure() const { return static_cast<Code>(own().head().failure.load(std::memory_order_acquire)); }
  std::string failure_text();

  // Numbers operations in the order of issue. Held while an operation is numbered and queued, so that two threads
  // cannot put them on a stream in another order.
  Mutex issue_mutex;
  std::uint64_t next_op ONESIDED_GUARDED_BY(issue_mutex) = 1;
  std::vector<std::uint64_t> next_send ONESIDED_GUARDED_BY(issue_mutex);  // by peer
  std::vector<std::uint64_t> next_receive ONESIDED_GUARDED_BY(issue_mutex);

  // Operations queued or running; destroy() waits for them.
  void entered() { outstanding_.fetch_add(1); }
  void left() { outstanding_.fetch_sub(1); }
  // Lets operations that can end do so for a while, cancels the rest, and shows the others that this rank has left.
  void destroy();

  std::atomic<bool> suspended{false};

 private:
  struct Update;
  Communicator(Switchboard& board, std::uint32_t rank, Options options);
  Result<void> make_page(std::uint32_t ranks);
  Result<void> open_pages(const Table& table);
  Result<void> wait_for_all_joined(Deadline deadline);
  Result<void> check(std::uint32_t peer, const Patience& patience, const std::function<bool()>& ready,
                     std::uint32_t& ticks);
  bool reachable(std::uint32_t peer);
  void changed() const;
  void tell(std::uint32_t peer, const Update& update, std::string_view tail = {});
  void tell_all(const Update& update, std::string_view tail = {});
  void take_update(std::string_view message);
  void set_state(PageState state);

  Switchboard& board_;
  const std::uint32_t rank_;
  Options options_;
  std::uint64_t instance_ = 0;
  std::string topic_;  // of updates between hosts
  Fd page_file_;
  std::uint64_t page_inode_ = 0;
  std::vector<Member> members_;
  std::vector<RankPage> pages_;
  std::vector<std::shared_ptr<FileView>> views_;      // of pages in other processes, and the own one
  std::vector<std::unique_ptr<std::byte[]>> copies_;  // of pages on other hosts
  bool several_hosts_ = false;

  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::uint64_t> outstanding_{0};
  std::atomic<bool> cancelled_{false};
  Mutex failure_mutex_;
  std::string failure_text_ ONESIDED_GUARDED_BY(failure_mutex_);
};

// HCCL's code for an error of this project.
Code code_of(Status status);

}  // namespace onesided::sim::hccl
