// SIGQUIT with a report: for a program that runs under the library with HEDDLE_PTHREAD_REPORT=1. Exits with 0, or says
// what failed.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int reports[2];

// Waits for a report on standard error.
static void await_report(void) {
  char text[4096];
  size_t length = 0;
  do {
    ssize_t got = read(reports[0], text + length, sizeof text - 1 - length);
    CHECK(got > 0);
    length += got;
    text[length] = 0;
  } while (!strstr(text, "kernel threads"));
  CHECK(strstr(text, "heddle run: ") && strstr(text, "threads created"));
}

// Takes what the last report had below its totals.
static void none_follows(void) {
  char text[4096];
  usleep(50000);
  fcntl(reports[0], F_SETFL, O_NONBLOCK);
  while (read(reports[0], text, sizeof text) > 0) {
  }
  usleep(50000);
  CHECK(read(reports[0], text, sizeof text) == -1 && errno == EAGAIN);
  fcntl(reports[0], F_SETFL, 0);
}

static _Atomic int handled;

static void handle(int signal) {
  (void)signal;
  handled++;
}

static void *in_thread(void *arg) {
  (void)arg;
  struct sigaction action;
  CHECK(raise(SIGQUIT) == 0);
  await_report();
  CHECK(pthread_kill(pthread_self(), SIGQUIT) == 0);
  await_report();
  CHECK(kill(getpid(), SIGQUIT) == 0);
  await_report();
  CHECK(sigaction(SIGQUIT, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
  return NULL;
}

static void run(void *(*test)(void *)) {
  pthread_t thread;
  IS(pthread_create(&thread, NULL, test, NULL), 0);
  IS(pthread_join(thread, NULL), 0);
}

static void *waits(void *arg) {
  while (!*(_Atomic int *)arg) usleep(1000);
  return NULL;
}

int main(void) {
  // A shell may have ignored it for a job in the background.
  CHECK(signal(SIGQUIT, SIG_DFL) != SIG_ERR);
  CHECK(pipe(reports) == 0 && dup2(reports[1], 2) == 2);
  run(in_thread);
  CHECK(kill(getpid(), SIGQUIT) == 0);
  await_report();
  // Blocked by the first thread, another takes it.
  sigset_t quit;
  sigemptyset(&quit);
  sigaddset(&quit, SIGQUIT);
  _Atomic int stop = 0;
  pthread_t waiter;
  IS(pthread_create(&waiter, NULL, waits, (void *)&stop), 0);
  CHECK(pthread_sigmask(SIG_BLOCK, &quit, NULL) == 0);
  CHECK(kill(getpid(), SIGQUIT) == 0);
  await_report();
  stop = 1;
  IS(pthread_join(waiter, NULL), 0);
  CHECK(pthread_sigmask(SIG_UNBLOCK, &quit, NULL) == 0);
  // What the program handles or ignores is its own business, until it no longer does.
  none_follows();
  CHECK(signal(SIGQUIT, handle) == SIG_DFL);
  CHECK(kill(getpid(), SIGQUIT) == 0);
  while (!handled) usleep(1000);
  CHECK(signal(SIGQUIT, SIG_IGN) == handle);
  CHECK(kill(getpid(), SIGQUIT) == 0);
  none_follows();
  struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_RESETHAND};
  CHECK(sigaction(SIGQUIT, &action, NULL) == 0);
  for (int i = 0; i < 2; i++) {
    CHECK(raise(SIGQUIT) == 0);
    await_report();
  }
  none_follows();
  // Children end by it, whether they have executed a program or not, unless they have threads of their own.
  for (int kind = 0; kind < 3; kind++) {
    int status, ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      if (kind == 1) {
        setenv("LD_PRELOAD", "", 1);
        dup2(ready[1], 1);
        execl("/bin/sh", "sh", "-c", "echo x; exec sleep 30", NULL);
      }
      if (kind == 2) {
        run(in_thread);
        _exit(7);
      }
      CHECK(write(ready[1], "x", 1) == 1);
      for (;;) pause();
    }
    if (kind < 2) {
      char byte;
      CHECK(read(ready[0], &byte, 1) == 1);
      CHECK(kill(child, SIGQUIT) == 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(kind < 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGQUIT : WEXITSTATUS(status) == 7);
    close(ready[0]), close(ready[1]);
  }
  puts("quits: ok");
  return 0;
}
