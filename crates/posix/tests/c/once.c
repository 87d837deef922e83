// pthread_once and call_once: a routine that waits, is cancelled, or was running in the parent of a fork.
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

enum { THREADS = 8 };
static pthread_once_t control;
static once_flag flag;
static int runs, is_cancelled;

static void wait_a_little(void) {
  usleep(20000);
  __atomic_fetch_add(&runs, 1, __ATOMIC_RELAXED);
}

static void *call(void *arg) {
  IS(pthread_once(&control, wait_a_little), 0);
  IS(runs, 1);
  return arg;
}

static void *call_c11(void *arg) {
  call_once(&flag, wait_a_little);
  IS(runs, 1);
  return arg;
}

// The first thread is cancelled in it, and the next one runs it again.
static void wait_for_a_cancel(void) {
  if (__atomic_exchange_n(&is_cancelled, 1, __ATOMIC_SEQ_CST) == 0) {
    pthread_cancel(pthread_self());
    pause();
  }
  __atomic_fetch_add(&runs, 1, __ATOMIC_RELAXED);
}

static void *call_cancelled(void *arg) {
  IS(pthread_once(&control, wait_for_a_cancel), 0);
  IS(runs, 1);
  return arg;
}

static void run(void *(*body)(void *), int cancelled) {
  pthread_t threads[THREADS];
  control = PTHREAD_ONCE_INIT;
  runs = 0;
  for (intptr_t i = 0; i < THREADS; i++) IS(pthread_create(&threads[i], NULL, body, (void *)i), 0);
  for (intptr_t i = 0; i < THREADS; i++) {
    void *result;
    IS(pthread_join(threads[i], &result), 0);
    if (result == PTHREAD_CANCELED)
      cancelled--;
    else
      IS((intptr_t)result, i);
  }
  IS(cancelled, 0);
  IS(runs, 1);
}

static void nothing(void) {}

// In the child, the thread that ran the routine is gone, so the caller runs it.
static void *fork_meanwhile(void *arg) {
  while (__atomic_load_n((int *)&control, __ATOMIC_RELAXED) == PTHREAD_ONCE_INIT) usleep(100);
  pid_t child = fork();
  if (child == 0) {
    IS(pthread_once(&control, nothing), 0);
    _exit(7);
  }
  int status;
  IS(waitpid(child, &status, 0), child);
  IS(WEXITSTATUS(status), 7);
  return arg;
}

int main(void) {
  run(call, 0);
  run(call_c11, 0);
  run(call_cancelled, 1);
  runs = 0;
  control = PTHREAD_ONCE_INIT;
  pthread_t forking, first;
  IS(pthread_create(&forking, NULL, fork_meanwhile, NULL), 0);
  IS(pthread_create(&first, NULL, call, NULL), 0);
  IS(pthread_join(first, NULL), 0);
  IS(pthread_join(forking, NULL), 0);
  puts("once: ok");
  return 0;
}
