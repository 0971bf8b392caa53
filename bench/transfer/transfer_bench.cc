// READs between two processes beside what the machine can do at best, in one run: the same buffers, rounds of each
// in turn, bytes checked. One JSON object a line on stdout; bench/transfer/run.py makes the table.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "ceilings.h"
#include "onesided/device/host/factory.h"
#include "onesided/node/open_engine.h"

namespace onesided::bench {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

constexpr const char* kCongestion = "cubic";

template <typename T>
T need(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.error().to_string());
    std::exit(1);
  }
  return std::move(result).value();
}
void need(const Result<void>& result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.error().to_string());
    std::exit(1);
  }
}

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// What the owner's bytes are, so that a reader can check any of them.
void fill(char* data, std::uint64_t nbytes) {
  auto* words = reinterpret_cast<std::uint64_t*>(data);
  for (std::uint64_t i = 0; i < nbytes / 8; ++i) words[i] = i * 0x9E3779B97F4A7C15ULL;
}

bool verify(const char* data, std::span<const Range> ranges) {
  for (const auto& range : ranges) {
    for (std::uint64_t at = 0; at + 8 <= range.nbytes; at += range.nbytes > 4096 ? 4088 : 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, data + range.to + at, 8);
      if (word != (range.from + at) / 8 * 0x9E3779B97F4A7C15ULL) return false;
    }
  }
  return true;
}

// What the owner tells the reader.
struct Introduction {
  int pid = 0, memfd = -1;
  std::uint64_t shared = 0, plain = 0, nbytes = 0;
  std::uint16_t port = 0;
  char engines[3][64] = {};  // shm, cma, tcp
};

constexpr const char* kTransports[] = {"shm", "cma", "tcp"};

[[noreturn]] void run_owner(int out, int in, std::uint64_t nbytes) {
  Introduction me;
  me.pid = ::getpid();
  me.nbytes = nbytes;
  auto& shared_memory = shared_host_device();
  char* shared = static_cast<char*>(need(shared_memory.allocate(nbytes, 2 * kMiB)));
  char* plain = static_cast<char*>(need(anonymous_host_device().allocate(nbytes, 2 * kMiB)));
  fill(shared, nbytes);
  fill(plain, nbytes);
  me.shared = address_of(shared);
  me.plain = address_of(plain);
  auto exported = need(shared_memory.export_memory(shared));
  me.memfd = exported.file.get();
  me.port = serve_raw_socket(plain, kCongestion);
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < 3; ++i) {
    engines.push_back(
        need(open_engine("127.0.0.1:0", {{"transports", kTransports[i]}, {"tcp_congestion", kCongestion}})));
    need(engines.back()->register_mem(i == 0 ? me.shared : me.plain, nbytes, MemType::kHost));
    std::snprintf(me.engines[i], sizeof(me.engines[i]), "%s", engines.back()->id().c_str());
  }
  if (::write(out, &me, sizeof(me)) != sizeof(me)) std::exit(1);
  char end = 0;
  (void)!::read(in, &end, 1);
  std::exit(0);
}

double cpu_seconds(int pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// All runs of one way to move one shape.
struct Series {
  std::string peer, transport;
  std::function<bool(std::span<const Range>)> move;
  std::vector<double> us;  // of each run
  double wall = 0, reader = 0, owner = 0;
  bool verified = true;
};

struct Shape {
  std::uint64_t nbytes = 0;
  std::uint64_t count = 0;
};

std::vector<Range> ranges_of(const Shape& shape, std::uint64_t buffer, std::mt19937_64& random) {
  std::vector<Range> ranges(shape.count);
  const std::uint64_t slots = buffer / shape.nbytes;
  std::vector<std::uint64_t> from(std::max(slots, shape.count)), to;
  for (std::uint64_t i = 0; i < from.size(); ++i) from[i] = i % slots;
  to = from;
  if (slots > 1) {
    std::shuffle(from.begin(), from.end(), random);
    std::shuffle(to.begin(), to.end(), random);
  }
  for (std::uint64_t i = 0; i < shape.count; ++i)
    ranges[i] = {from[i] * shape.nbytes, to[i] * shape.nbytes, shape.nbytes};
  return ranges;
}

// One round of one series: `runs` runs, each timed.
void run_series(Series& series, int owner_pid, char* target, const std::vector<std::vector<Range>>& work) {
  const double reader = cpu_seconds(::getpid()), owner = cpu_seconds(owner_pid);
  const auto begin = Clock::now();
  for (const auto& ranges : work) {
    const auto start = Clock::now();
    series.verified = series.move(ranges) && series.verified;
    series.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  series.wall += std::chrono::duration<double>(Clock::now() - begin).count();
  series.reader += cpu_seconds(::getpid()) - reader;
  series.owner += cpu_seconds(owner_pid) - owner;
  series.verified = series.verified && verify(target, work.back());
}

void print_row(const Series& series, const Shape& shape) {
  auto us = series.us;
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2], best = us.front(), p99 = us[us.size() * 99 / 100];
  const double bytes = static_cast<double>(shape.nbytes * shape.count);
  fmt::print(
      "{{\"peer\": \"{}\", \"transport\": \"{}\", \"op\": \"READ\", \"size\": {}, \"count\": {}, \"median_us\": "
      "{:.3f}, "
      "\"best_us\": {:.3f}, \"p99_us\": {:.3f}, \"median_gbps\": {:.3f}, \"best_gbps\": {:.3f}, \"verified\": {}, "
      "\"reader_cores\": {:.2f}, \"owner_cores\": {:.2f}, \"runs\": {}}}\n",
      series.peer, series.transport, shape.nbytes, shape.count, median, best, p99, bytes / median / 1e3,
      bytes / best / 1e3, series.verified, series.reader / series.wall, series.owner / series.wall, us.size());
  std::fflush(stdout);
}

class Reader {
 public:
  explicit Reader(const Introduction& owner) : owner_(owner) {
    target_ = static_cast<char*>(need(anonymous_host_device().allocate(owner.nbytes, 2 * kMiB)));
    std::memset(target_, 1, owner.nbytes);
    const Fd file(::open(fmt::format("/proc/{}/fd/{}", owner.pid, owner.memfd).c_str(), O_RDONLY | O_CLOEXEC));
    void* mapped = ::mmap(nullptr, owner.nbytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (mapped == MAP_FAILED) need(Result<void>(Error(Status::kFailed, "cannot map the owner's memfd")));
    mapped_ = static_cast<const char*>(mapped);
    socket_ = connect_raw_socket(owner.port, kCongestion);
    for (int i = 0; i < 3; ++i) {
      engines_.push_back(
          need(open_engine("127.0.0.1:0", {{"transports", kTransports[i]}, {"tcp_congestion", kCongestion}})));
      need(engines_.back()->register_mem(address_of(target_), owner.nbytes, MemType::kHost));
      need(engines_.back()->connect(owner.engines[i], 10'000));
      // The raw mapping above is populated; ours fills its page table as pages are first read. What the first READ
      // costs is measured by itself (connect_first_read_ms).
      const TransferItem all{address_of(target_), i == 0 ? owner.shared : owner.plain, owner.nbytes};
      need(engines_.back()->transfer_sync(owner.engines[i], Op::kRead, TransferList{{&all, 1}}, 60'000));
    }
  }

  void measure(const Shape& shape, int rounds) {
    const std::uint64_t total = shape.nbytes * shape.count;
    const auto runs = std::clamp<std::uint64_t>((256ULL << 20) / total, 1, 2000);
    std::vector<Series> all = series();
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::vector<Range>> work;
      for (std::uint64_t i = 0; i < runs; ++i) work.push_back(ranges_of(shape, usable(shape), random_));
      for (auto& one : all) {
        std::memset(target_, 0, std::min<std::uint64_t>(total, kMiB));
        run_series(one, owner_.pid, target_, work);
      }
    }
    for (const auto& one : all) print_row(one, shape);
  }

  // What is not a bandwidth: one line each.
  void measure_extras() {
    extra("init_ms", [] { need(open_engine("127.0.0.1:0", {})); }, 1e-3, 9);
    extra(
        "register_1gib_ms",
        [&] {
          auto& engine = *engines_[1];
          // Another range of the same size: the buffer itself is registered already.
          need(engine.deregister_mem(need(engine.register_mem(address_of(mapped_), owner_.nbytes, MemType::kHost)),
                                     1000));
        },
        1e-3, 9);
    extra(
        "connect_first_read_ms",
        [&] {
          auto& engine = *engines_[0];
          const TransferItem item{address_of(target_), owner_.shared, 4096};
          need(engine.disconnect(owner_.engines[0]));
          need(engine.connect(owner_.engines[0], 10'000));
          need(engine.transfer_sync(owner_.engines[0], Op::kRead, TransferList{{&item, 1}}, 10'000));
        },
        1e-3, 9);
    measure_many_items();
    measure_small_beside_huge();
    measure_idle();
  }

 private:
  // Small shapes stay in a few MiB, as real small transfers do; the rest roams the whole buffer.
  std::uint64_t usable(const Shape& shape) const {
    return shape.nbytes * shape.count <= 64 * kKiB ? std::min<std::uint64_t>(owner_.nbytes, 4 * kMiB) : owner_.nbytes;
  }

  std::vector<Series> series() {
    std::vector<Series> all;
    for (const auto way : copy_ways()) {
      const char* names[] = {"memcpy", "strings", "nontemporal"};
      all.push_back({fmt::format("raw_copy_{}", names[static_cast<int>(way)]),
                     "shm",
                     [this, way](auto ranges) {
                       raw_copy(way, target_, mapped_, ranges);
                       return true;
                     },
                     {}});
    }
    all.push_back(ours(0));
    all.push_back({"raw_process_vm",
                   "cma",
                   [this](auto ranges) {
                     return raw_process_vm(owner_.pid, target_, reinterpret_cast<const char*>(owner_.plain), ranges);
                   },
                   {}});
    all.push_back(ours(1));
    all.push_back({"raw_socket", "tcp", [this](auto ranges) { return raw_socket(socket_, target_, ranges); }, {}});
    all.push_back(ours(2));
    return all;
  }

  Series ours(int which) {
    return {"onesided",
            kTransports[which],
            [this, which](std::span<const Range> ranges) {
              const std::uint64_t base = which == 0 ? owner_.shared : owner_.plain;
              items_.clear();
              for (const auto& range : ranges)
                items_.push_back({address_of(target_ + range.to), base + range.from, range.nbytes});
              const auto done =
                  engines_[which]->transfer_sync(owner_.engines[which], Op::kRead, TransferList{items_}, 60'000);
              if (!done.ok()) fmt::print(stderr, "{}\n", done.error().to_string());
              return done.ok();
            },
            {}};
  }

  void extra(const char* name, const std::function<void()>& run, double scale, int times) {
    std::vector<double> us;
    for (int i = 0; i < times; ++i) {
      const auto start = Clock::now();
      run();
      us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    std::sort(us.begin(), us.end());
    fmt::print("{{\"extra\": \"{}\", \"median\": {:.4f}, \"best\": {:.4f}}}\n", name, us[us.size() / 2] * scale,
               us[0] * scale);
    std::fflush(stdout);
  }

  void measure_many_items() {
    const Shape shape{4096, 100'000};
    if (owner_.nbytes < shape.nbytes * shape.count) return;
    const auto ranges = ranges_of(shape, owner_.nbytes, random_);
    items_.clear();
    for (const auto& range : ranges)
      items_.push_back({address_of(target_ + range.to), owner_.shared + range.from, range.nbytes});
    std::vector<double> raw, whole, submit;
    for (int i = 0; i < 5; ++i) {
      auto start = Clock::now();
      raw_copy(CopyWay::kMemcpy, target_, mapped_, ranges);
      raw.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      start = Clock::now();
      const auto transfer =
          need(engines_[0]->transfer_async(owner_.engines[0], Op::kRead, TransferList{items_}, 60'000));
      submit.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      (void)transfer->wait(Deadline::never());
      whole.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    for (auto* series : {&raw, &whole, &submit}) std::sort(series->begin(), series->end());
    fmt::print("{{\"extra\": \"items_100k_over_copy_us_per_item\", \"median\": {:.4f}, \"best\": {:.4f}}}\n",
               (whole[2] - raw[2]) / 1e5, (whole[0] - raw[0]) / 1e5);
    fmt::print("{{\"extra\": \"items_100k_submit_ms\", \"median\": {:.4f}, \"best\": {:.4f}}}\n", submit[2] / 1e3,
               submit[0] / 1e3);
  }

  void measure_small_beside_huge() {
    auto& engine = *engines_[0];
    const TransferItem huge{address_of(target_), owner_.shared, owner_.nbytes - kMiB};
    const TransferItem small{address_of(target_ + owner_.nbytes - kMiB), owner_.shared, 4096};
    std::vector<double> us;
    for (int i = 0; i < 3; ++i) {
      const auto transfer = need(engine.transfer_async(owner_.engines[0], Op::kRead, TransferList{{&huge, 1}}, 60'000));
      while (transfer->status() == TransferStatus::kWaiting) {
        const auto start = Clock::now();
        need(engine.transfer_sync(owner_.engines[0], Op::kRead, TransferList{{&small, 1}}, 10'000));
        us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      }
    }
    std::sort(us.begin(), us.end());
    fmt::print("{{\"extra\": \"small_beside_huge_p99_us\", \"median\": {:.3f}, \"best\": {:.3f}}}\n",
               us[us.size() * 99 / 100], us[us.size() / 2]);
  }

  void measure_idle() {
    const double reader = cpu_seconds(::getpid()), owner = cpu_seconds(owner_.pid);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    fmt::print("{{\"extra\": \"idle_cores\", \"median\": {:.5f}, \"best\": {:.5f}}}\n",
               (cpu_seconds(::getpid()) - reader) / 3, (cpu_seconds(owner_.pid) - owner) / 3);
  }

  const Introduction owner_;
  char* target_ = nullptr;
  const char* mapped_ = nullptr;
  int socket_ = -1;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<TransferItem> items_;
  std::mt19937_64 random_{7};
};

int run(int argc, char** argv) {
  std::uint64_t buffer = kGiB;
  int rounds = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--buffer-mib") == 0) buffer = std::strtoull(argv[i + 1], nullptr, 10) * kMiB;
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  int introduction[2], ending[2];
  if (::pipe(introduction) != 0 || ::pipe(ending) != 0) return 1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ending[1]);
    run_owner(introduction[1], ending[0], buffer);
  }
  ::close(introduction[1]);
  Introduction owner;
  if (::read(introduction[0], &owner, sizeof(owner)) != sizeof(owner)) return 1;
  {
    Reader reader(owner);
    for (const std::uint64_t nbytes : {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 256 * kMiB, kGiB})
      if (nbytes <= buffer) reader.measure({nbytes, 1}, nbytes >= 16 * kMiB ? rounds + 2 : rounds);
    for (const std::uint64_t count : {64, 1024})
      if (count * 64 * kKiB <= buffer) reader.measure({64 * kKiB, count}, rounds + 2);
    reader.measure_extras();
  }
  ::close(ending[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return 0;
}

}  // namespace
}  // namespace onesided::bench

int main(int argc, char** argv) { return onesided::bench::run(argc, argv); }
