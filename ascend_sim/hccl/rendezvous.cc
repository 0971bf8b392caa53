#include "ascend_sim/hccl/rendezvous.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>

namespace onesided::sim::hccl {
namespace {

constexpr const char* kHelloTopic = "hccl-hello";
// A rank says hello again this often: a meeting place that has died is noticed, and one that starts late is found.
constexpr std::int64_t kHelloEveryMs = 1000;

std::uint64_t inode_of(const char* path) {
  struct stat info{};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::string answer_topic(const std::string& topic, std::uint32_t rank) { return fmt::format("{}/{}", topic, rank); }

// Ranks that have said hello, by meeting. Confined to its switchboard's thread.
class Assembler {
 public:
  explicit Assembler(Switchboard& board) : board_(board) {}

  // "<topic> <ranks> <member>"
  void hello(std::string_view text) {
    std::istringstream in{std::string(text)};
    std::string topic, rest;
    std::uint32_t ranks = 0;
    if (!(in >> topic >> ranks) || !std::getline(in, rest) || ranks == 0) return;
    const auto member = Member::decode(rest);
    if (!member.ok()) return;
    Meeting& meeting = meetings_[topic];
    if (meeting.members.empty()) meeting.members.resize(ranks);
    if (meeting.members.size() != ranks) {
      return refuse(topic, *member,
                    fmt::format("rank {} says there are {} ranks, another rank said {}", member->rank, ranks,
                                meeting.members.size()));
    }
    if (member->rank >= ranks) {
      return refuse(topic, *member, fmt::format("rank {} is not below the number of ranks, {}", member->rank, ranks));
    }
    auto& place = meeting.members[member->rank];
    if (place && place->page_inode == member->page_inode && place->pid == member->pid) return;  // said it again
    if (place) return refuse(topic, *member, fmt::format("rank {} came twice", member->rank));
    place = *member;
    if (++meeting.present == ranks) complete(topic);
  }

 private:
  struct Meeting {
    std::vector<std::optional<Member>> members;
    std::uint32_t present = 0;
  };

  void refuse(const std::string& topic, const Member& member, const std::string& words) {
    (void)board_.tell(member.engine_id, answer_topic(topic, member.rank), "refused " + words);
  }
  void complete(const std::string& topic) {
    const Meeting meeting = std::move(meetings_[topic]);
    meetings_.erase(topic);
    std::string text = fmt::format("table {}\n", random_number());
    for (const auto& member : meeting.members) text += member->encode() + "\n";
    // A rank that died meanwhile is the others' to notice.
    for (const auto& member : meeting.members) {
      (void)board_.tell(member->engine_id, answer_topic(topic, member->rank), text);
    }
  }

  Switchboard& board_;
  std::map<std::string, Meeting> meetings_;
};

// The answer to a hello, filled in by the switchboard's thread. Internally synchronized.
struct Answer {
  Mutex mutex;
  CondVar arrived;
  std::optional<std::string> text ONESIDED_GUARDED_BY(mutex);
};

Result<Table> read_table(const std::string& text, std::uint32_t ranks) {
  if (text.starts_with("refused ")) return Error(Status::kParamInvalid, text.substr(8));
  std::istringstream in(text);
  std::string word, line;
  Table table;
  if (!(in >> word >> table.instance) || word != "table") {
    return Error(Status::kFailed, "the list of ranks cannot be read; do all ranks run the same version?");
  }
  std::getline(in, line);
  while (std::getline(in, line)) {
    ONESIDED_TRY_ASSIGN(member, Member::decode(line));
    table.members.push_back(std::move(member));
  }
  if (table.members.size() != ranks) {
    return Error(Status::kFailed, fmt::format("the list has {} ranks instead of {}", table.members.size(), ranks));
  }
  return table;
}

Result<std::string> address_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return Error(Status::kFailed, "cannot list the network interfaces");
  std::string found;
  for (const ifaddrs* at = all; at != nullptr && found.empty(); at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || name != at->ifa_name) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text))) found = text;
  }
  ::freeifaddrs(all);
  if (!found.empty()) return found;
  return Error(
      Status::kNotFound,
      fmt::format("HCCL_SOCKET_IFNAME=\"{}\": no such interface with an IPv4 address; set it to the name of one, "
                  "or HCCL_IF_IP to an address of this host",
                  name));
}

Result<std::string> own_address() {
  if (const char* ip = std::getenv("HCCL_IF_IP"); ip && *ip) return std::string(ip);
  std::string name = std::getenv("HCCL_SOCKET_IFNAME") ? std::getenv("HCCL_SOCKET_IFNAME") : "";
  if (name.starts_with("=")) name.erase(0, 1);
  if (!name.empty()) return address_of_interface(name);
  return std::string("127.0.0.1");
}

// Every engine that collectives use may be where ranks meet.
void serve_meetings(Switchboard& board) {
  auto assembler = std::make_shared<Assembler>(board);
  board.listen(kHelloTopic, [assembler](std::string_view text) { assembler->hello(text); });
}

}  // namespace

std::string Member::encode() const {
  return fmt::format("{} {} {} {} {} {} {}", rank, engine_id, host, pid, start_time, page_file, page_inode);
}

Result<Member> Member::decode(std::string_view text) {
  std::istringstream in{std::string(text)};
  Member member;
  if (in >> member.rank >> member.engine_id >> member.host >> member.pid >> member.start_time >> member.page_file >>
      member.page_inode) {
    return member;
  }
  return Error(Status::kParamInvalid, fmt::format("\"{}\" does not describe a rank", text));
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{}-{}-{}-{}", boot, inode_of("/proc/self/ns/pid"), inode_of("/proc/self/ns/net"), ::getuid());
}

Result<Switchboard*> own_switchboard() {
  static Mutex mutex;
  static Switchboard* instance = nullptr;
  MutexLock lock(mutex);
  if (instance) return instance;
  ONESIDED_TRY_ASSIGN(address, own_address());
  ONESIDED_TRY_ASSIGN(board, open_meeting_place(address + ":0"));
  instance = board.release();
  return instance;
}

Result<std::unique_ptr<Switchboard>> open_meeting_place(std::string_view address) {
  ONESIDED_TRY_ASSIGN(board, Switchboard::open(address));
  serve_meetings(*board);
  return board;
}

Result<Table> meet(Switchboard& board, const Meeting& meeting, const Member& self, Deadline deadline) {
  const std::string topic = answer_topic(meeting.topic, self.rank);
  const std::string hello = fmt::format("{} {} {}", meeting.topic, meeting.ranks, self.encode());
  auto answer = std::make_shared<Answer>();
  board.listen(topic, [answer](std::string_view text) {
    MutexLock lock(answer->mutex);
    answer->text = std::string(text);
    answer->arrived.notify_all();
  });
  struct Ignore {
    Switchboard& board;
    const std::string& topic;
    ~Ignore() { board.ignore(topic); }
  } ignore{board, topic};

  while (true) {
    const auto told = board.tell(meeting.engine_id, kHelloTopic, hello, kHelloEveryMs * 5);
    if (!told.ok() && !meeting.may_start_late) {
      return told.error().with_context(fmt::format(
          "rank {} cannot reach the root at {} (between hosts, set HCCL_IF_IP or HCCL_SOCKET_IFNAME on each, "
          "and ONESIDED_AUTH_SECRET_FILE)",
          self.rank, meeting.engine_id));
    }
    const Deadline again = std::min(deadline, Deadline::after_ms(kHelloEveryMs));
    MutexLock lock(answer->mutex);
    while (!answer->text && answer->arrived.wait(lock, again)) {
    }
    if (answer->text) return read_table(*answer->text, meeting.ranks);
    if (deadline.passed()) {
      return Error(Status::kTimeout, fmt::format("rank {} of {} waited in vain for the other ranks; the limit is "
                                                 "HCCL_CONNECT_TIMEOUT",
                                                 self.rank, meeting.ranks));
    }
  }
}

}  // namespace onesided::sim::hccl
