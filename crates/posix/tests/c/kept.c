// A thread that blocks again and again in the kernel without a word keeps its kernel thread, also after it has waited
// for a descriptor, or slept: the kernel thread may then use all CPUs, which a worker's may not. Exits with 0, or says
// what failed.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_t start(void *(*run)(void *), void *arg) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, arg) == 0);
  return thread;
}

static void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }

static void *write_later(void *arg) {
  usleep(20000);
  CHECK(write((int)(intptr_t)arg, "12345678", 8) == 8);
  return NULL;
}

static long raw(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

static int cpus(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CHECK(raw(SYS_sched_getaffinity, 0, sizeof set, (long)&set) > 0);
  return CPU_COUNT(&set);
}

static _Atomic int stop;

static void *spin(void *arg) {
  (void)arg;
  while (!stop) sched_yield();
  return NULL;
}

// Blocks unseen until its kernel thread is its own after a wait of the other kind.
static void *blocks_unseen(void *arg) {
  int usable = *(int *)arg, fds[2], is_read = 0, is_sleep = 0;
  char bytes[8];
  CHECK(pipe(fds) == 0);
  for (long begin = ms_now(); !is_read || !is_sleep;) {
    CHECK(ms_now() - begin < 60000);
    pthread_t writer = start(write_later, (void *)(intptr_t)fds[1]);
    CHECK(raw(SYS_read, fds[0], (long)bytes, 8) == 8);
    join(writer);
    writer = start(write_later, (void *)(intptr_t)fds[1]);
    CHECK(read(fds[0], bytes, 8) == 8);
    is_read |= cpus() == usable;
    join(writer);
    usleep(1000);
    is_sleep |= cpus() == usable;
  }
  close(fds[0]), close(fds[1]);
  return NULL;
}

int main(void) {
  int usable = cpus();
  pthread_t spinners[64];
  int count = usable < 60 ? usable + 2 : 62;
  for (int i = 0; i < count; i++) spinners[i] = start(spin, NULL);
  join(start(blocks_unseen, &usable));
  stop = 1;
  for (int i = 0; i < count; i++) join(spinners[i]);
  puts("kept: ok");
  return 0;
}
