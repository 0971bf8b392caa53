// The operations on words that two processes share without a lock: a row of the region table, a write lease. They are
// templates over the atomic type, so that tests/weak_memory runs this same text under a model of the memory order of
// C++, where a load may return every value that the standard allows; aarch64 uses that freedom, x86_64 hardly does.
//
// The row. One writer. `live` is a generation, 0 between two of them; no generation comes twice.
//
// Rule 1: a reader never sees a mixture of two registrations. publish_row() writes 0 before the fields (release fence);
// the reader looks at `live` before and after them (acquire, acquire fence). A field of a newer registration brings the
// 0 or the newer generation with it, so the second look differs from the first.
//
// Rule 2: no byte that the owner wrote after retire_row() is taken for the region's. The reader copies, fences, looks
// at `live`; the owner clears `live`, fences, writes. If the copy has a byte from after the owner's fence, the two
// fences synchronize, and the look finds the 0.
//
// The lease. A writer takes its cell, fences, looks at `live`; the owner clears `live`, fences, looks at the cells.
//
// Rule 3: with a sequentially consistent fence between both pairs, at least one of them sees the other's store.
//
// Rule 4: an owner that finds the cell empty has every byte that was written under the lease, because give_cell_back()
// releases. Another lease on the cell in between does not break that: a read-modify-write takes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace onesided {

// The fence of the machine; tests have another.
struct MachineFence {
  void operator()(std::memory_order order) const { std::atomic_thread_fence(order); }
};

// What a row says, as plain words.
struct RowWords {
  std::uint32_t generation = 0;
  std::uint32_t traits = 0;
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
};

template <class Row, class Fence = MachineFence>
void publish_row(Row& row, const RowWords& words, const Fence& fence = {}) {
  row.live.store(0, std::memory_order_relaxed);
  fence(std::memory_order_release);
  row.address.store(words.address, std::memory_order_relaxed);
  row.nbytes.store(words.nbytes, std::memory_order_relaxed);
  row.traits.store(words.traits, std::memory_order_relaxed);
  row.live.store(words.generation, std::memory_order_release);
}

// Ends with a fence: the caller's following writes and checks are later for all threads and processes.
template <class Row, class Fence = MachineFence>
void retire_row(Row& row, const Fence& fence = {}) {
  row.live.store(0, std::memory_order_seq_cst);
  fence(std::memory_order_seq_cst);
}

// Begins with a fence: the caller's preceding reads and stores are earlier for all threads and processes.
template <class Row, class Fence = MachineFence>
bool row_is_live(const Row& row, std::uint32_t generation, const Fence& fence = {}) {
  fence(std::memory_order_seq_cst);
  return row.live.load(std::memory_order_acquire) == generation;
}

template <class Row, class Fence = MachineFence>
std::optional<RowWords> read_row(const Row& row, const Fence& fence = {}) {
  RowWords words;
  words.generation = row.live.load(std::memory_order_acquire);
  if (words.generation == 0) return std::nullopt;
  words.address = row.address.load(std::memory_order_relaxed);
  words.nbytes = row.nbytes.load(std::memory_order_relaxed);
  words.traits = row.traits.load(std::memory_order_relaxed);
  fence(std::memory_order_acquire);
  if (row.live.load(std::memory_order_relaxed) != words.generation) return std::nullopt;
  return words;
}

// False: the cell is taken.
template <class Cell>
bool take_cell(Cell& cell, std::uint64_t lease) {
  std::uint64_t expected = 0;
  return cell.load(std::memory_order_relaxed) == 0 &&
         cell.compare_exchange_strong(expected, lease, std::memory_order_seq_cst);
}

// True: an owner waits for a cell and has to be woken.
template <class Cell, class Counter>
bool give_cell_back(Cell& cell, const Counter& waiters) {
  cell.store(0, std::memory_order_seq_cst);
  return waiters.load(std::memory_order_seq_cst) != 0;
}

template <class Cell>
bool cell_names(const Cell& cell, std::uint64_t lease) {
  return cell.load(std::memory_order_seq_cst) == lease;
}

}  // namespace onesided
