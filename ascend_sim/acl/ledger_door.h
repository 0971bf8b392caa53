// How processes of one user find the memfd that holds the machine's books, without a file that could outlive them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onesided/base/fd.h"
#include "onesided/base/result.h"

namespace onesided::sim {

inline constexpr const char* kLedgerFileName = "onesided_sim_ledger";

// Held while a process looks for the books or founds them: one at a time. Gone with the process that held it.
// TIMEOUT when somebody holds it for five seconds.
Result<Fd> lock_ledger_door(const std::string& machine);

// The books of every living process of this user and simulated machine that has them open; opened anew, in no order.
Result<std::vector<Fd>> open_living_ledgers(const std::string& machine);

// Tells others where this process keeps the books (`ledger_fd`), until the returned socket is closed.
Result<Fd> announce_ledger(const std::string& machine, int ledger_fd);

}  // namespace onesided::sim
