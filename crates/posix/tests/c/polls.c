// poll, select and epoll in threads. Exits with 0, or says what failed.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static pthread_t start(void *(*run)(void *), void *arg) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, arg) == 0);
  return thread;
}

static void *join(pthread_t thread) {
  void *result;
  CHECK(pthread_join(thread, &result) == 0);
  return result;
}

static void *write_later(void *arg) {
  usleep(20000);
  CHECK(write((int)(intptr_t)arg, "12345678", 8) == 8);
  return NULL;
}

static void *polls(void *arg) {
  (void)arg;
  enum { N = 10 };
  int pipes[N][2];
  struct pollfd fds[N + 1];
  for (int i = 0; i < N; i++) {
    CHECK(pipe(pipes[i]) == 0);
    fds[i] = (struct pollfd){.fd = pipes[i][0], .events = POLLIN | POLLPRI};
  }
  fds[N] = (struct pollfd){.fd = -1, .events = POLLIN};
  long begin = ms_now();
  CHECK(poll(fds, N + 1, 0) == 0);
  CHECK(poll(fds, N + 1, 30) == 0);
  CHECK(ms_now() - begin >= 30);
  begin = ms_now();
  CHECK(poll(NULL, 0, 20) == 0);
  struct timespec limit = {0, 20000000};
  CHECK(ppoll(fds, N, &limit, NULL) == 0);
  CHECK(ms_now() - begin >= 40);
  limit.tv_nsec = 1000000000;
  CHECK(ppoll(fds, N, &limit, NULL) == -1 && errno == EINVAL);
  for (int i = 0; i < N; i += 3) {
    pthread_t writer = start(write_later, (void *)(intptr_t)pipes[i][1]);
    CHECK(poll(fds, N + 1, i ? 10000 : -1) == 1);
    for (int j = 0; j < N; j++) CHECK(fds[j].revents == (i == j ? POLLIN : 0));
    char buf[8];
    CHECK(read(pipes[i][0], buf, 8) == 8);
    join(writer);
  }
  CHECK(write(pipes[1][1], "x", 1) == 1 && write(pipes[2][1], "x", 1) == 1);
  CHECK(poll(fds, N, -1) == 2);
  close(pipes[3][1]);
  CHECK(poll(fds, N, -1) == 3 && fds[3].revents == POLLHUP);
  struct pollfd closed = {.fd = 1000000, .events = POLLIN};
  CHECK(poll(&closed, 1, -1) == 1 && closed.revents == POLLNVAL);
  for (int i = 0; i < N; i++) close(pipes[i][0]), i != 3 && close(pipes[i][1]);
  return NULL;
}

static void *poll_many(void *arg) {
  (void)arg;
  enum { N = 100 };
  int pipes[N][2];
  struct pollfd fds[N];
  for (int i = 0; i < N; i++) {
    CHECK(pipe(pipes[i]) == 0);
    fds[i] = (struct pollfd){.fd = pipes[i][0], .events = POLLIN};
  }
  CHECK(poll(fds, N, 10) == 0);
  pthread_t writer = start(write_later, (void *)(intptr_t)pipes[77][1]);
  CHECK(poll(fds, N, -1) == 1 && fds[77].revents == POLLIN);
  join(writer);
  for (int i = 0; i < N; i++) close(pipes[i][0]), close(pipes[i][1]);
  return NULL;
}

static void *selects(void *arg) {
  (void)arg;
  int a[2], b[2];
  CHECK(pipe(a) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, b) == 0);
  int top = b[1] + 1;
  fd_set in, out;
  for (int i = 0; i < 3; i++) {
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(a[0], &in), FD_SET(b[0], &in);
    struct timeval limit = {0, i ? 20000 : 0};
    long begin = ms_now();
    CHECK(select(top, &in, NULL, NULL, &limit) == 0);
    CHECK(ms_now() - begin >= (i ? 20 : 0));
    CHECK(!FD_ISSET(a[0], &in) && !FD_ISSET(b[0], &in));
    CHECK(limit.tv_sec == 0 && limit.tv_usec == 0);
  }
  struct timeval pause = {0, 10000};
  CHECK(select(0, NULL, NULL, NULL, &pause) == 0);
  pthread_t writer = start(write_later, (void *)(intptr_t)b[1]);
  FD_SET(a[0], &in), FD_SET(b[0], &in);
  struct timeval limit = {100, 0};
  CHECK(select(top, &in, NULL, NULL, &limit) == 1);
  CHECK(limit.tv_sec <= 99 && limit.tv_sec > 30);
  CHECK(!FD_ISSET(a[0], &in) && FD_ISSET(b[0], &in));
  join(writer);
  FD_SET(a[0], &in), FD_SET(b[0], &in), FD_SET(b[0], &out);
  CHECK(select(top, &in, &out, NULL, NULL) == 2);
  CHECK(FD_ISSET(b[0], &in) && FD_ISSET(b[0], &out));
  char buf[8];
  CHECK(read(b[0], buf, 8) == 8);
  writer = start(write_later, (void *)(intptr_t)a[1]);
  FD_SET(a[0], &in), FD_SET(b[0], &in);
  CHECK(pselect(top, &in, NULL, NULL, NULL, NULL) == 1 && FD_ISSET(a[0], &in));
  join(writer);
  int shut = dup(a[0]);
  close(shut);
  FD_ZERO(&in);
  FD_SET(shut, &in);
  CHECK(select(shut + 1, &in, NULL, NULL, NULL) == -1 && errno == EBADF);
  close(a[0]), close(a[1]), close(b[0]), close(b[1]);
  return NULL;
}

// One epoll instance with several threads that wait in it, and events from others.

enum { WAITERS = 4, SOURCES = 8, EVENTS = 200 };
static int epoll, sources[SOURCES];
static long taken;

static void *take_events(void *arg) {
  (void)arg;
  for (;;) {
    struct epoll_event event;
    int n = epoll_wait(epoll, &event, 1, -1);
    CHECK(n == 1);
    uint64_t count;
    if (event.data.u32 == SOURCES) return NULL;
    ssize_t got = read(sources[event.data.u32], &count, 8);
    CHECK(got == 8 || (got == -1 && errno == EAGAIN));
    if (got == 8) __atomic_fetch_add(&taken, count, __ATOMIC_RELAXED);
  }
}

static void *make_events(void *arg) {
  int nth = (int)(intptr_t)arg;
  for (int i = 0; i < EVENTS; i++) {
    uint64_t one = 1;
    CHECK(write(sources[nth], &one, 8) == 8);
    if (i % 16 == nth) usleep(100);
  }
  return NULL;
}

static void test_epoll(void) {
  pthread_t waiters[WAITERS], makers[SOURCES];
  epoll = epoll_create1(0);
  taken = 0;
  CHECK(epoll >= 0);
  for (int i = 0; i < SOURCES; i++) {
    sources[i] = eventfd(0, EFD_NONBLOCK);
    struct epoll_event event = {.events = i % 2 ? EPOLLIN : EPOLLIN | EPOLLET, .data.u32 = i};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, sources[i], &event) == 0);
  }
  for (int i = 0; i < WAITERS; i++) waiters[i] = start(take_events, NULL);
  for (int i = 0; i < SOURCES; i++) makers[i] = start(make_events, (void *)(intptr_t)i);
  for (int i = 0; i < SOURCES; i++) join(makers[i]);
  long begin = ms_now();
  while (__atomic_load_n(&taken, __ATOMIC_RELAXED) < SOURCES * EVENTS) {
    CHECK(ms_now() - begin < 60000);
    usleep(1000);
  }
  int end = eventfd(1, 0);
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = SOURCES};
  CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, end, &event) == 0);
  for (int i = 0; i < WAITERS; i++) join(waiters[i]);
  for (int i = 0; i < SOURCES; i++) close(sources[i]);
  close(end), close(epoll);
}

// An instance of one thread, as event loops have it; then another thread goes on with it; then its number is another
// instance's, while a copy of the old one is open.

struct loop {
  int epoll, sources[2];
  long taken;
};

static void *take_half(void *arg) {
  struct loop *loop = arg;
  for (long most = loop->taken + EVENTS; loop->taken < most;) {
    struct epoll_event event;
    CHECK(epoll_wait(loop->epoll, &event, 1, 60000) == 1);
    uint64_t count;
    ssize_t got = read(loop->sources[event.data.u32], &count, 8);
    CHECK(got == 8 || errno == EAGAIN);
    if (got == 8) loop->taken += count;
  }
  return NULL;
}

static void *write_events(void *arg) {
  struct loop *loop = arg;
  for (int i = 0; i < EVENTS; i++) {
    uint64_t one = 1;
    for (int j = 0; j < 2; j++) CHECK(write(loop->sources[j], &one, 8) == 8);
    if (i % 8 == 0) usleep(100);
  }
  return NULL;
}

static void *loops(void *arg) {
  (void)arg;
  int old[3];
  for (int i = 0; i < 3; i++) {
    struct loop loop = {.epoll = epoll_create1(EPOLL_CLOEXEC)};
    for (int j = 0; j < 2; j++) {
      // Semaphores: an event is left after each read.
      loop.sources[j] = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
      struct epoll_event event = {.events = EPOLLIN, .data.u32 = j};
      CHECK(epoll_ctl(loop.epoll, EPOLL_CTL_ADD, loop.sources[j], &event) == 0);
    }
    pthread_t writer = start(write_events, &loop);
    join(start(take_half, &loop));
    join(start(take_half, &loop));
    join(writer);
    CHECK(loop.taken == 2 * EVENTS);
    old[i] = dup(loop.epoll);
    close(loop.epoll), close(loop.sources[0]), close(loop.sources[1]);
  }
  for (int i = 0; i < 3; i++) close(old[i]);
  return NULL;
}

static void *epoll_times(void *arg) {
  (void)arg;
  int own = epoll_create1(EPOLL_CLOEXEC), fds[2];
  struct epoll_event event = {.events = EPOLLIN}, events[4];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  CHECK(epoll_ctl(own, EPOLL_CTL_ADD, fds[0], &event) == 0);
  CHECK(epoll_wait(own, events, 4, 0) == 0);
  long begin = ms_now();
  CHECK(epoll_wait(own, events, 4, 25) == 0);
  CHECK(epoll_pwait(own, events, 4, 25, NULL) == 0);
  CHECK(ms_now() - begin >= 50);
  CHECK(epoll_wait(own, events, 0, 0) == -1 && errno == EINVAL);
  CHECK(epoll_wait(fds[0], events, 4, 0) == -1 && errno == EINVAL);
  // An instance in an instance.
  int outer = epoll_create1(EPOLL_CLOEXEC);
  event.data.u32 = 5;
  CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, own, &event) == 0);
  pthread_t writer = start(write_later, (void *)(intptr_t)fds[1]);
  CHECK(epoll_wait(outer, events, 4, -1) == 1 && events[0].data.u32 == 5);
  CHECK(epoll_wait(own, events, 4, -1) == 1);
  join(writer);
  close(outer), close(own), close(fds[0]), close(fds[1]);
  return NULL;
}

// Counters and timers, which have no form that does not block.

static void *counters(void *arg) {
  (void)arg;
  uint64_t count;
  int fd = eventfd(0, 0);
  pthread_t writer = start(write_later, (void *)(intptr_t)fd);
  CHECK(read(fd, &count, 8) == 8 && count > 0);
  join(writer);
  CHECK(read(fd, &count, 4) == -1 && errno == EINVAL);
  close(fd);
  fd = eventfd(0, EFD_NONBLOCK);
  CHECK(read(fd, &count, 8) == -1 && errno == EAGAIN);
  CHECK(read(fd, &count, 8) == -1 && errno == EAGAIN);
  close(fd);
  fd = timerfd_create(CLOCK_MONOTONIC, 0);
  struct itimerspec in_20ms = {.it_value = {0, 20000000}};
  long begin = ms_now();
  CHECK(timerfd_settime(fd, 0, &in_20ms, NULL) == 0);
  CHECK(read(fd, &count, 8) == 8 && count == 1);
  CHECK(ms_now() - begin >= 19);
  close(fd);
  return NULL;
}

// A call that succeeds leaves errno alone, also if the thread gives way at its end and looks at what others wait for.

static _Atomic int enough;

static void *computes(void *arg) {
  while (!enough) continue;
  return arg;
}

static void *reads_one(void *fd) {
  char byte;
  CHECK(read((int)(intptr_t)fd, &byte, 1) == 1);
  return NULL;
}

static void keeps_errno(void) {
  int ready[2], awaited[2];
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  CHECK(pipe(ready) == 0 && pipe(awaited) == 0 && write(ready[1], "x", 1) == 1);
  pthread_t threads[] = {start(reads_one, (void *)(intptr_t)awaited[0]), start(computes, NULL), start(computes, NULL)};
  for (int i = 0; i < 100000; i++) {
    fd_set set;
    struct timeval now = {0, 0};
    FD_ZERO(&set);
    FD_SET(ready[0], &set);
    errno = 0;
    CHECK(select(ready[0] + 1, &set, NULL, NULL, &now) == 1 && errno == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0 && errno == 0);
  }
  enough = 1;
  CHECK(write(awaited[1], "x", 1) == 1);
  for (int i = 0; i < 3; i++) join(threads[i]);
  for (int i = 0; i < 2; i++) close(ready[i]), close(awaited[i]);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1;
  void *(*tests[])(void *) = {polls, poll_many, selects, epoll_times, loops, counters};
  for (int i = 0; i < rounds; i++) {
    for (size_t j = 0; j < sizeof tests / sizeof *tests; j++) join(start(tests[j], NULL));
    // All at once.
    pthread_t threads[sizeof tests / sizeof *tests];
    for (size_t j = 0; j < sizeof tests / sizeof *tests; j++)
      if (tests[j] != selects) threads[j] = start(tests[j], NULL);
    for (size_t j = 0; j < sizeof tests / sizeof *tests; j++)
      if (tests[j] != selects) join(threads[j]);
    test_epoll();
    enough = 0;
    keeps_errno();
  }
  puts("polls: ok");
  return 0;
}
