#include "ascend_sim/acl/ledger_door.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "onesided/base/clock.h"

namespace onesided::sim {
namespace {

std::string name_prefix(const std::string& machine) { return fmt::format("onesided-sim/{}/{}/", ::geteuid(), machine); }

// A socket bound to an abstract name; errno in the error's place: EADDRINUSE is an answer, not a failure.
int bind_abstract(const std::string& name, Fd* socket) {
  Fd made(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!made.valid()) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return errno;
  *socket = std::move(made);
  return 0;
}

// "<pid>/<fd>" after the prefix.
bool parse_place(std::string_view text, int* pid, int* fd) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const auto first = std::from_chars(text.data(), text.data() + slash, *pid);
  const auto second = std::from_chars(text.data() + slash + 1, text.data() + text.size(), *fd);
  return first.ec == std::errc() && second.ec == std::errc() && second.ptr == text.data() + text.size();
}

// Opens another process's books. Invalid when that is no (longer a) process of ours that has them there.
Result<Fd> open_ledger_of(int pid, int fd) {
  struct stat owner{};
  const std::string process = fmt::format("/proc/{}", pid);
  if (::stat(process.c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) return Fd();
  const std::string path = fmt::format("{}/fd/{}", process, fd);
  char target[128];
  const auto length = ::readlink(path.c_str(), target, sizeof(target));
  if (length < 0 && errno == EACCES) {
    return Error{Status::kFailed, fmt::format("the simulated machine's books are held by process {} (same user), which "
                                              "may not be looked into ({}: {}); run both processes with equal rights",
                                              pid, path, std::strerror(EACCES))};
  }
  if (length <= 0 || std::string_view(target, length).find(kLedgerFileName) == std::string_view::npos) return Fd();
  return Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

Result<Fd> lock_ledger_door(const std::string& machine) {
  const auto deadline = Deadline::after_ms(5000);
  while (true) {
    Fd socket;
    const int error = bind_abstract(name_prefix(machine) + "door", &socket);
    if (error == 0) return socket;
    if (error != EADDRINUSE) {
      return Error{Status::kFailed, fmt::format("cannot lock the simulated machine's books: {}", std::strerror(error))};
    }
    if (deadline.passed()) {
      return Error{Status::kTimeout, "another process has kept the simulated machine's books locked for 5 s"};
    }
    // The holder maps one file and leaves: a short nap is all the waiting there is.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<std::vector<Fd>> open_living_ledgers(const std::string& machine) {
  std::ifstream sockets("/proc/net/unix");
  if (!sockets)
    return Error{Status::kFailed, "cannot read /proc/net/unix, where processes of the simulated machine meet"};
  const std::string wanted = "@" + name_prefix(machine);
  std::vector<Fd> ledgers;
  for (std::string line; std::getline(sockets, line);) {
    const auto at = line.rfind(wanted);
    if (at == std::string::npos) continue;
    int pid = 0;
    int fd = -1;
    if (!parse_place(std::string_view(line).substr(at + wanted.size()), &pid, &fd) || pid == ::getpid()) continue;
    ONESIDED_TRY_ASSIGN(ledger, open_ledger_of(pid, fd));
    if (ledger.valid()) ledgers.push_back(std::move(ledger));
  }
  return ledgers;
}

Result<Fd> announce_ledger(const std::string& machine, int ledger_fd) {
  Fd socket;
  const int error = bind_abstract(fmt::format("{}{}/{}", name_prefix(machine), ::getpid(), ledger_fd), &socket);
  if (error != 0) {
    return Error{Status::kFailed,
                 fmt::format("cannot announce the simulated machine's books: {}", std::strerror(error))};
  }
  return socket;
}

}  // namespace onesided::sim
