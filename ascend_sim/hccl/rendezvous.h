// How ranks find each other: each says hello to the engine that the root's information names; when all have, that
// engine tells each of them who the others are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ascend_sim/hccl/switchboard.h"
#include "onesided/base/clock.h"
#include "onesided/base/result.h"

namespace onesided::sim::hccl {

// A rank, as it introduces itself. A value.
struct Member {
  std::uint32_t rank = 0;
  std::string engine_id;
  std::string host;  // equal: they can map each other's memory
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
  std::int32_t page_file = -1;  // descriptor of its page, in its process
  std::uint64_t page_inode = 0;

  std::string encode() const;
  // PARAM_INVALID.
  static Result<Member> decode(std::string_view text);
};

// What distinguishes hosts whose processes can map each other's memory: the boot, the namespaces and the user.
std::string host_identity();

// Where ranks meet. A value.
struct Meeting {
  std::string engine_id;  // of who assembles the ranks
  std::string topic;      // the same for all ranks of one communicator, for no other
  std::uint32_t ranks = 0;
  bool may_start_late = false;  // the engine may not be there yet
};

// All ranks in order, and a number that no other communicator has. A value.
struct Table {
  std::uint64_t instance = 0;
  std::vector<Member> members;
};

// The switchboard of this process, opened at the first call on HCCL_IF_IP, on the address of the interface that
// HCCL_SOCKET_IFNAME names, or on 127.0.0.1. Ranks can meet there. Lives for ever. Any thread.
Result<Switchboard*> own_switchboard();
// One more, at an address that all ranks know beforehand.
Result<std::unique_ptr<Switchboard>> open_meeting_place(std::string_view address);

// Says hello and waits for the others. TIMEOUT: names how many came. PARAM_INVALID: a rank came twice, or ranks do not
// agree on their number. NOT_CONNECTED, PEER_LOST: the engine that assembles is not there.
Result<Table> meet(Switchboard& board, const Meeting& meeting, const Member& self, Deadline deadline);

}  // namespace onesided::sim::hccl
