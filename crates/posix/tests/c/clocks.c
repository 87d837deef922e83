// The CPU clocks of threads. Exits with 0, or says what failed. No time is compared with another's but where one
// contains the other.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef int64_t ns;
enum { MS = 1000000 };

static ns clock_ns(clockid_t clock) {
  struct timespec t;
  CHECK(clock_gettime(clock, &t) == 0);
  CHECK(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static ns own(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static ns usage(void) {
  struct rusage u;
  CHECK(getrusage(RUSAGE_THREAD, &u) == 0);
  CHECK(u.ru_maxrss > 0);
  return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL;
}

// Computes until the thread's own clock has advanced so far, in pieces, giving way to others in between.
static void compute(ns time) {
  ns start = own(), last = start;
  while (last - start < time) {
    for (volatile int i = 0; i < 20000; i++) {
    }
    ns now = own();
    CHECK(now >= last);
    last = now;
    if (now / MS % 2) sched_yield();
  }
}

enum { THREADS = 8 };
static pthread_barrier_t barrier;
static ns spent[THREADS];
static _Atomic int stop;

static void *computes(void *arg) {
  intptr_t nth = (intptr_t)arg;
  pthread_barrier_wait(&barrier);
  ns start = own();
  compute((nth + 1) * 2 * MS);
  spent[nth] = own() - start;
  CHECK(spent[nth] >= (nth + 1) * 2 * MS);
  pthread_barrier_wait(&barrier);
  return NULL;
}

// Threads that share CPUs: what each has used is its own, and all together no more than the process.
static void test_sum(void) {
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
  for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, computes, (void *)i) == 0);
  ns process = clock_ns(CLOCK_PROCESS_CPUTIME_ID), sum = 0;
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  process = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process;
  for (int i = 0; i < THREADS; i++) {
    IS(pthread_join(threads[i], NULL), 0);
    sum += spent[i];
  }
  // A turn of some microseconds in which the kernel runs another thread counts whole.
  CHECK(sum <= process + process / 4);
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

// A thread that waits, in whatever way, has not used all of that time: it sleeps for most of it on any machine.
static void *waits(void *arg) {
  (void)arg;
  ns start = own(), begin = clock_ns(CLOCK_MONOTONIC);
  for (int i = 0; i < 20; i++) usleep(2000);
  struct timespec t = {0, 20 * MS};
  CHECK(nanosleep(&t, NULL) == 0);
  // In the kernel, without a word: the clock stands still there, too.
  ns waited;
  do {
    long result = syscall(SYS_poll, NULL, 0, 50);
    CHECK(result == 0 || errno == EINTR);
    waited = clock_ns(CLOCK_MONOTONIC) - begin;
  } while (waited < 360 * MS);
  ns used = own() - start;
  CHECK(used <= waited - 100 * MS);
  return NULL;
}

static void *spins(void *arg) {
  (void)arg;
  while (!stop) {
  }
  return NULL;
}

static void *sleeps(void *arg) {
  (void)arg;
  while (!stop) usleep(1000);
  return NULL;
}

// The clock of another thread: it runs while that thread does, from the first look or soon after.
static void test_others(void) {
  pthread_t spinner, sleeper;
  clockid_t spinner_clock, sleeper_clock;
  stop = 0;
  CHECK(pthread_create(&spinner, NULL, spins, NULL) == 0);
  CHECK(pthread_create(&sleeper, NULL, sleeps, NULL) == 0);
  IS(pthread_getcpuclockid(spinner, &spinner_clock), 0);
  IS(pthread_getcpuclockid(sleeper, &sleeper_clock), 0);
  CHECK(spinner_clock != sleeper_clock);
  struct timespec res;
  CHECK(clock_getres(spinner_clock, &res) == 0 && res.tv_sec == 0 && res.tv_nsec == 1);
  ns start = clock_ns(spinner_clock), last = start, idle = clock_ns(sleeper_clock);
  while (last - start < 30 * MS) {
    ns now = clock_ns(spinner_clock);
    CHECK(now >= last);
    last = now;
    CHECK(clock_ns(sleeper_clock) >= idle);
    usleep(500);
  }
  stop = 1;
  CHECK(pthread_join(spinner, NULL) == 0 && pthread_join(sleeper, NULL) == 0);
  struct timespec t;
  CHECK(clock_gettime(spinner_clock, &t) == -1 && errno == EINVAL);
}

static void *own_clocks(void *arg) {
  (void)arg;
  clockid_t clock;
  IS(pthread_getcpuclockid(pthread_self(), &clock), 0);
  compute(3 * MS);
  // The same clock by each of its names. Between two looks it only advances.
  ns first = own(), by_id = clock_ns(clock), second = own();
  CHECK(first <= by_id && by_id <= second);
  struct timespec t;
  CHECK(syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &t) == 0);
  CHECK(t.tv_sec * 1000000000LL + t.tv_nsec >= second);
  CHECK(usage() / 1000 <= own() / 1000 && usage() >= 3 * MS);
  CHECK(clock_getres(CLOCK_THREAD_CPUTIME_ID, &t) == 0 && t.tv_sec == 0 && t.tv_nsec == 1);
  CHECK(clock_getres(CLOCK_THREAD_CPUTIME_ID, NULL) == 0);
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
  CHECK(clock_gettime(12345, &t) == -1 && errno == EINVAL);
  CHECK(getrusage(12345, NULL) == -1);
  return NULL;
}

// A new thread begins at zero, although its stack may be another's.
static void *fresh(void *arg) {
  (void)arg;
  ns start = own();
  CHECK(start < 100 * MS);
  compute(MS);
  return NULL;
}

static void run(void *(*test)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, test, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  // The first thread's own clock, before and after there are others.
  compute(MS);
  test_others();
  run(own_clocks);
  for (int i = 0; i < 20; i++) run(fresh);
  run(waits);
  test_sum();
  compute(MS);
  clockid_t clock;
  IS(pthread_getcpuclockid(pthread_self(), &clock), 0);
  ns first = own(), by_id = clock_ns(clock);
  CHECK(first <= by_id && by_id <= own());
  puts("clocks: ok");
  return 0;
}
