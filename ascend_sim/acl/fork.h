// Like the real driver's, the simulator's memory and threads do not survive fork(). A child must hear that in
// words at its first call instead of hanging in a queue whose worker exists only in the parent.
#pragma once

namespace onesided::sim {

// Call once something exists that a child cannot use (memory, a worker, the ledger). Thread-safe, cheap when repeated.
void mark_used();
// True in a child forked after mark_used().
bool forked_after_use();

}  // namespace onesided::sim
