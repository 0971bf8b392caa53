#include "onesided/memory/pool_stats.h"

namespace onesided {
namespace {

constexpr Counter PoolStats::* kCounters[] = {
    &PoolStats::allocation,      &PoolStats::segment,        &PoolStats::active,       &PoolStats::inactive_split,
    &PoolStats::allocated_bytes, &PoolStats::reserved_bytes, &PoolStats::active_bytes, &PoolStats::inactive_split_bytes,
    &PoolStats::requested_bytes, &PoolStats::overhead_bytes};
constexpr std::int64_t PoolStats::* kEvents[] = {&PoolStats::num_alloc_retries, &PoolStats::num_ooms,
                                                 &PoolStats::num_device_alloc, &PoolStats::num_device_free};

}  // namespace

// Peaks of different pools may be at different times; their sum is an upper bound, as in torch's own sums over pools.
Counter& Counter::operator+=(const Counter& other) {
  current += other.current;
  peak += other.peak;
  allocated += other.allocated;
  freed += other.freed;
  return *this;
}

void PoolStats::reset_peak() {
  for (const auto counter : kCounters) (this->*counter).reset_peak();
}

void PoolStats::reset_accumulated() {
  for (const auto counter : kCounters) (this->*counter).reset_accumulated();
  for (const auto count : kEvents) this->*count = 0;
}

PoolStats& PoolStats::operator+=(const PoolStats& other) {
  for (const auto counter : kCounters) this->*counter += other.*counter;
  for (const auto count : kEvents) this->*count += other.*count;
  return *this;
}

}  // namespace onesided
