// Runs the operations of src/onesided/engine/shared_protocol.h under relacy (Debian's relacy-dev), a checker that knows
// the memory order of C++: it tries interleavings, and a load returns each of the values that the standard allows it,
// not the one that this machine happens to give. A broken rule ends the program with the execution that breaks it.
// `--without-fences` leaves the fences out and must find broken rules: it shows that the checker would see one.
// clang-format off: relacy's macros must not reach the headers of the standard and of the protocol
#include <atomic>
#include <cstring>
#include <iostream>

#include "onesided/engine/shared_protocol.h"

#include <relacy/relacy.hpp>
// clang-format on
// relacy renames these in the programs that it checks; this one names them in full.
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst
#undef delete
#undef malloc
#undef free
#undef assert
#undef errno

namespace onesided {
namespace {

constexpr unsigned kExecutions = 1'000'000;  // at most, of each search
bool with_fences = true;

rl::memory_order of_model(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed: return rl::mo_relaxed;
    case std::memory_order_consume: return rl::mo_consume;
    case std::memory_order_acquire: return rl::mo_acquire;
    case std::memory_order_release: return rl::mo_release;
    case std::memory_order_acq_rel: return rl::mo_acq_rel;
    default: return rl::mo_seq_cst;
  }
}

// relacy's atomic behind the interface of std::atomic.
template <class T>
class ModelAtomic {
 public:
  T load(std::memory_order order) const { return value_.load(of_model(order), RL_INFO); }
  void store(T value, std::memory_order order) { value_.store(value, of_model(order), RL_INFO); }
  bool compare_exchange_strong(T& expected, T value, std::memory_order order) {
    return value_.compare_exchange_strong(expected, value, of_model(order), RL_INFO);
  }

 private:
  rl::atomic<T> value_;
};

struct ModelFence {
  void operator()(std::memory_order order) const {
    if (with_fences) rl::atomic_thread_fence(of_model(order), RL_INFO);
  }
};

struct ModelRow {
  ModelAtomic<std::uint32_t> live, traits;
  ModelAtomic<std::uint64_t> address, nbytes;
};

RowWords words_of(std::uint32_t generation) {
  return {generation, generation, generation * 10ULL, generation * 100ULL};
}

// T0: publish 1 | retire | publish 2        T1: read: nothing, all of 1 or all of 2
struct RowIsNeverMixed : rl::test_suite<RowIsNeverMixed, 2> {
  ModelRow row;

  void before() { row.live.store(0, std::memory_order_relaxed); }
  void thread(unsigned index) {
    if (index == 0) {
      publish_row(row, words_of(1), ModelFence{});
      retire_row(row, ModelFence{});
      publish_row(row, words_of(2), ModelFence{});
      return;
    }
    const auto seen = read_row(row, ModelFence{});
    if (!seen) return;
    const RowWords expected = words_of(seen->generation);
    RL_ASSERT(seen->traits == expected.traits && seen->address == expected.address && seen->nbytes == expected.nbytes);
  }
};

// T0: retire | write 2 into the memory      T1: copy the memory | still live? then the copy is a 1
struct CopyOfRetiredMemoryIsNotTaken : rl::test_suite<CopyOfRetiredMemoryIsNotTaken, 2> {
  ModelRow row;
  ModelAtomic<std::uint32_t> memory;

  void before() {
    memory.store(1, std::memory_order_relaxed);
    publish_row(row, words_of(1), ModelFence{});
  }
  void thread(unsigned index) {
    if (index == 0) {
      retire_row(row, ModelFence{});
      memory.store(2, std::memory_order_relaxed);
      return;
    }
    const std::uint32_t copy = memory.load(std::memory_order_relaxed);
    if (row_is_live(row, 1, ModelFence{})) RL_ASSERT(copy == 1);
  }
};

// T0: retire | no lease? then use the memory     T1 (twice): take | live? then write | give back
// `memory` is no atomic: that both use it at once is a data race, which relacy reports.
struct OwnerWaitsForWriters : rl::test_suite<OwnerWaitsForWriters, 3> {
  static constexpr std::uint64_t kLease = 7, kOther = 8;
  ModelRow row;
  ModelAtomic<std::uint64_t> cell;
  ModelAtomic<std::uint32_t> waiters;
  rl::var<int> memory;

  void before() {
    memory(RL_INFO) = 0;
    cell.store(0, std::memory_order_relaxed);
    waiters.store(0, std::memory_order_relaxed);
    publish_row(row, words_of(1), ModelFence{});
  }
  void thread(unsigned index) {
    if (index == 0) {
      retire_row(row, ModelFence{});
      if (!cell_names(cell, kLease)) memory(RL_INFO) = 2;
    } else if (index == 1) {
      if (!take_cell(cell, kLease)) return;
      if (row_is_live(row, 1, ModelFence{})) memory(RL_INFO) = 1;
      give_cell_back(cell, waiters);
    } else if (take_cell(cell, kOther)) {  // a write to another region of the same owner, through the same cell
      give_cell_back(cell, waiters);
    }
  }
};

// T0: announce | a lease? then sleep until woken      T1: release | a waiter announced? then wake
struct NoWakeUpIsLost : rl::test_suite<NoWakeUpIsLost, 2> {
  static constexpr std::uint64_t kLease = 7;
  ModelAtomic<std::uint64_t> cell;
  ModelAtomic<std::uint32_t> waiters;
  ModelAtomic<std::uint32_t> sleeps, woken;

  void before() {
    cell.store(kLease, std::memory_order_relaxed);
    waiters.store(0, std::memory_order_relaxed);
    sleeps.store(0, std::memory_order_relaxed);
    woken.store(0, std::memory_order_relaxed);
  }
  void thread(unsigned index) {
    if (index == 0) {
      waiters.store(1, std::memory_order_seq_cst);
      if (cell_names(cell, kLease)) sleeps.store(1, std::memory_order_relaxed);
    } else if (give_cell_back(cell, waiters)) {
      woken.store(1, std::memory_order_relaxed);
    }
  }
  void after() { RL_ASSERT(sleeps.load(std::memory_order_relaxed) == 0 || woken.load(std::memory_order_relaxed) == 1); }
};

// True: no execution broke the rule, of those that one way to search tries.
template <class Model>
bool holds_in(rl::scheduler_type_e search, rl::iteration_t* executions) {
  rl::test_params parameters;
  parameters.iteration_count = kExecutions;
  parameters.search_type = search;
  std::ostream nowhere(nullptr);
  parameters.progress_stream = &nowhere;
  parameters.output_stream = with_fences ? &std::cout : &nowhere;
  const bool held = rl::simulate<Model>(parameters);
  *executions += parameters.stop_iteration;
  return held;
}

// Systematically, and at random: the systematic search leaves out executions that it takes for unfair.
template <class Model>
bool holds(const char* name) {
  rl::iteration_t executions = 0;
  const bool held = holds_in<Model>(rl::fair_full_search_scheduler_type, &executions) &&
                    holds_in<Model>(rl::random_scheduler_type, &executions);
  std::cout << (held ? "holds   " : "BROKEN  ") << name << " (" << executions << " executions)\n";
  return held;
}

int run() {
  const bool mixed = holds<RowIsNeverMixed>("a row is never a mixture");
  const bool retired = holds<CopyOfRetiredMemoryIsNotTaken>("a copy of retired memory is not taken");
  const bool writers = holds<OwnerWaitsForWriters>("the owner waits for writers");
  const bool wake = holds<NoWakeUpIsLost>("no wake-up is lost");
  if (with_fences) return mixed && retired && writers && wake ? 0 : 1;
  return mixed || retired ? 1 : 0;  // these two rest on the fences alone
}

}  // namespace
}  // namespace onesided

int main(int count, char** arguments) {
  onesided::with_fences = count < 2 || std::strcmp(arguments[1], "--without-fences") != 0;
  return onesided::run();
}
