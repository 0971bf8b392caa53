// How processes of one user find the memfd of the machine's ledger, without a file that could remain after them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onesided/base/fd.h"
#include "onesided/base/result.h"

namespace onesided::sim {

inline constexpr const char* kLedgerFileName = "onesided_sim_ledger";

// A lock held while a process looks for the ledger or creates it; released by the kernel when the process ends. TIMEOUT
// if another process holds it for five seconds.
Result<Fd> lock_ledger_door(const std::string& machine);

// The ledgers that running processes of this user and simulated machine have open; newly opened, in no order.
Result<std::vector<Fd>> open_living_ledgers(const std::string& machine);

// Announces this process's descriptor of the ledger (`ledger_fd`) until the returned socket is closed.
Result<Fd> announce_ledger(const std::string& machine, int ledger_fd);

}  // namespace onesided::sim
