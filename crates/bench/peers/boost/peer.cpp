// The operations of `heddle bench threads` on Boost.Fiber, with its default scheduler (round robin, one thread).
//
// Usage: peer OP MILLISECONDS; prints the CPU nanoseconds of one operation.
#include <boost/fiber/all.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace fibers = boost::fibers;
namespace this_fiber = boost::this_fiber;

static void op_yield(uint64_t n) {
  auto yielder = [n] {
    for (uint64_t i = 0; i < n / 2; i++) this_fiber::yield();
  };
  fibers::fiber a(yielder), b(yielder);
  a.join();
  b.join();
}

static void op_spawn_join(uint64_t n) {
  while (n-- > 0) fibers::fiber([] {}).join();
}

static void op_spawn_yield(uint64_t n) {
  uint64_t finished = 0;
  for (uint64_t i = 0; i < n; i++) {
    fibers::fiber([&finished] { finished++; }).detach();
    this_fiber::yield();
  }
  while (finished < n) this_fiber::yield();
}

static void op_mutex(uint64_t n) {
  static fibers::mutex mutex;
  while (n-- > 0) {
    mutex.lock();
    mutex.unlock();
  }
}

static void op_condvar(uint64_t n) {
  fibers::mutex mutex;
  fibers::condition_variable turn_of[2];
  int turn = 0;
  auto player = [&](int me) {
    std::unique_lock<fibers::mutex> lock(mutex);
    for (uint64_t i = 0; i < n / 2; i++) {
      while (turn != me) turn_of[me].wait(lock);
      turn = !me;
      turn_of[!me].notify_one();
    }
  };
  fibers::fiber a(player, 0), b(player, 1);
  a.join();
  b.join();
}

using op_fn = void(uint64_t);

static double cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

static double ns_per_op(op_fn *op, uint64_t n) {
  double begin = cpu_ns();
  op(n);
  return (cpu_ns() - begin) / static_cast<double>(n);
}

static op_fn *find(const char *name) {
  static const struct {
    const char *name;
    op_fn *op;
  } table[] = {{"yield", op_yield},
               {"spawn_join", op_spawn_join},
               {"spawn_yield", op_spawn_yield},
               {"mutex", op_mutex},
               {"condvar", op_condvar}};
  for (const auto &entry : table)
    if (std::strcmp(entry.name, name) == 0) return entry.op;
  std::fprintf(stderr, "no such operation: %s\n", name);
  std::exit(2);
}

// Warm up, estimate, then run for about the requested time: the same in every peer.
int main(int argc, char **argv) {
  const uint64_t warm_up = 2000;
  if (argc != 3) {
    std::fprintf(stderr, "usage: peer OP MILLISECONDS\n");
    return 2;
  }
  op_fn *op = find(argv[1]);
  ns_per_op(op, warm_up);
  double estimate = ns_per_op(op, warm_up);
  auto n = static_cast<uint64_t>(std::atof(argv[2]) * 1e6 / (estimate + 0.1));
  std::printf("%.3f\n", ns_per_op(op, n < warm_up ? warm_up : n));
  return 0;
}
