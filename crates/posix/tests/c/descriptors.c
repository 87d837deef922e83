// Opening FIFOs, and calls that change what a descriptor is. Exits with 0, or says what failed.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/heddle-XXXXXX", fifo[64];

static pthread_t start(void *(*run)(void *), intptr_t arg) {
  pthread_t thread;
  IS(pthread_create(&thread, NULL, run, (void *)arg), 0);
  return thread;
}

static intptr_t join(pthread_t thread) {
  void *result;
  IS(pthread_join(thread, &result), 0);
  return (intptr_t)result;
}

// FIFOs: an open waits for the other side, without holding up other threads.

static _Atomic int opening, ticks, stop;

static void *open_fifo(void *arg) {
  opening++;
  int fd = open(fifo, (int)(intptr_t)arg);
  return (void *)(intptr_t)(fd < 0 ? -errno : fd);
}

static void *counts(void *arg) {
  (void)arg;
  while (!stop) {
    ticks++;
    usleep(200);
  }
  return NULL;
}

// Waits until the other threads have made some rounds.
static void let_run(void) {
  int then = ticks + 20;
  while (ticks < then) usleep(1000);
}

enum { OPENERS = 12 };

static void test_fifo(void) {
  stop = ticks = opening = 0;
  pthread_t counter = start(counts, 0), openers[OPENERS];
  for (int i = 0; i < OPENERS; i++) openers[i] = start(open_fifo, O_RDONLY);
  while (opening < OPENERS) usleep(1000);
  let_run();
  int out = open(fifo, O_WRONLY);
  CHECK(out >= 0);
  int in[OPENERS];
  for (int i = 0; i < OPENERS; i++) CHECK((in[i] = (int)join(openers[i])) >= 0);
  CHECK(write(out, "x", 1) == 1);
  char buffer[4];
  CHECK(read(in[OPENERS - 1], buffer, 4) == 1);
  close(out);
  for (int i = 0; i < OPENERS; i++) close(in[i]);
  // The other way round, with the flags that never wait.
  CHECK(open(fifo, O_WRONLY | O_NONBLOCK) == -1 && errno == ENXIO);
  pthread_t writer = start(open_fifo, O_WRONLY);
  let_run();
  int reader = open(fifo, O_RDONLY | O_NONBLOCK);
  CHECK(reader >= 0);
  out = (int)join(writer);
  CHECK(out >= 0);
  int both = open(fifo, O_RDWR);
  CHECK(both >= 0);
  close(both), close(out), close(reader);
  stop = 1;
  join(counter);
}

static _Atomic int handled;

static void handle(int signal) {
  (void)signal;
  handled++;
}

static void test_fifo_interrupts(void) {
  struct sigaction action = {.sa_handler = handle};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  opening = handled = 0;
  pthread_t opener = start(open_fifo, O_RDONLY);
  while (!opening) usleep(1000);
  usleep(20000);
  IS(pthread_kill(opener, SIGUSR1), 0);
  IS(join(opener), -EINTR);
  CHECK(handled == 1);
  opening = 0;
  opener = start(open_fifo, O_WRONLY);
  while (!opening) usleep(1000);
  IS(pthread_cancel(opener), 0);
  CHECK((void *)join(opener) == PTHREAD_CANCELED);
}

static void *opens(void *arg) {
  (void)arg;
  char path[96];
  struct stat info;
  snprintf(path, sizeof path, "%s/file", folder);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0640);
  CHECK(fd >= 0 && fstat(fd, &info) == 0 && (info.st_mode & 0777 & ~0640) == 0);
  CHECK(fcntl(fd, F_GETFD) == 0);
  close(fd);
  CHECK(open(path, O_WRONLY | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
  CHECK(open("/nonexistent/x", O_RDONLY) == -1 && errno == ENOENT);
  char *volatile nowhere = NULL;
  CHECK(open(nowhere, O_RDONLY) == -1 && errno == EFAULT);
  fd = creat(path, 0600);
  CHECK(fd >= 0 && write(fd, "abc", 3) == 3);
  close(fd);
  int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(dir >= 0 && fcntl(dir, F_GETFD) == FD_CLOEXEC);
  for (int i = 0; i < 3; i++) {
    char text[4] = "";
    fd = openat(dir, "file", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, 4) == 3 && strcmp(text, "abc") == 0);
    close(fd);
  }
  // A file that becomes a FIFO, of the same name.
  CHECK(unlinkat(dir, "file", 0) == 0 && mkfifoat(dir, "file", 0600) == 0);
  snprintf(fifo, sizeof fifo, "%s/file", folder);
  opening = 0;
  pthread_t opener = start(open_fifo, O_RDONLY);
  while (!opening) usleep(1000);
  fd = openat(dir, "file", O_WRONLY);
  CHECK(fd >= 0);
  int in = (int)join(opener);
  CHECK(in >= 0);
  close(in), close(fd);
  CHECK(unlinkat(dir, "file", 0) == 0);
  close(dir);
  return NULL;
}

// FIONBIO, on and off.

static void *write_later(void *arg) {
  usleep(20000);
  CHECK(write((int)(intptr_t)arg, "late", 4) == 4);
  return NULL;
}

static void *nonblocking(void *arg) {
  (void)arg;
  int fds[2], on = 1, off = 0;
  char buffer[8];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  for (int i = 0; i < 3; i++) {
    CHECK(ioctl(fds[0], FIONBIO, &on) == 0);
    CHECK(recv(fds[0], buffer, 8, 0) == -1 && errno == EAGAIN);
    CHECK(read(fds[0], buffer, 8) == -1 && errno == EAGAIN);
    CHECK(ioctl(fds[0], FIONBIO, &off) == 0);
    pthread_t writer = start(write_later, fds[1]);
    CHECK((i % 2 ? read(fds[0], buffer, 8) : recv(fds[0], buffer, 8, 0)) == 4);
    join(writer);
  }
  int available = -1;
  CHECK(write(fds[1], "xy", 2) == 2 && ioctl(fds[0], FIONREAD, &available) == 0 && available == 2);
  close(fds[0]), close(fds[1]);
  return NULL;
}

// SO_RCVLOWAT: a receive waits for so much, in each form.

static void *write_slowly(void *arg) {
  for (int i = 0; i < 6; i++) {
    usleep(3000);
    CHECK(write((int)(intptr_t)arg, "12", 2) == 2);
  }
  return NULL;
}

static void connected(int fds[2]) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, 1) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
  fds[1] = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(fds[1], (struct sockaddr *)&at, size) == 0);
  fds[0] = accept(listener, NULL, NULL);
  CHECK(fds[0] >= 0);
  close(listener);
}

static void *low_water(void *arg) {
  int fds[2], least = 12;
  char buffer[32];
  if (arg)
    connected(fds);
  else
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  // Used before the option is set.
  CHECK(write(fds[1], "x", 1) == 1 && read(fds[0], buffer, 32) == 1);
  CHECK(setsockopt(fds[0], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least) == 0);
  for (int form = 0; form < 3; form++) {
    pthread_t writer = start(write_slowly, fds[1]);
    struct iovec part = {buffer, 32};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (form == 0) IS(recv(fds[0], buffer, 32, 0), 12);
    if (form == 1) IS(read(fds[0], buffer, 32), 12);
    if (form == 2) IS(recvmsg(fds[0], &message, 0), 12);
    join(writer);
  }
  CHECK(recv(fds[0], buffer, 32, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  close(fds[1]);
  CHECK(recv(fds[0], buffer, 32, 0) == 0);
  close(fds[0]);
  return NULL;
}

// dup2 onto a number at which threads wait: they end there, and no later than with the next data of either. glibc's
// threads go on with the old description; tasks try again with the new one.

static int replaced[2];

static void *read_replaced(void *arg) {
  char *text = arg;
  opening++;
  intptr_t got = read(replaced[0], text, 8);
  return (void *)got;
}

static void *replaces(void *arg) {
  (void)arg;
  int other[2], old;
  char first[8], second[8];
  CHECK(pipe(replaced) == 0 && pipe(other) == 0);
  opening = 0;
  pthread_t one = start(read_replaced, (intptr_t)first), two = start(read_replaced, (intptr_t)second);
  while (opening < 2) usleep(1000);
  usleep(20000);
  old = dup(replaced[0]);
  IS(dup2(other[0], replaced[0]), replaced[0]);
  usleep(20000);
  CHECK(write(other[1], "new", 3) == 3);
  usleep(20000);
  // With tasks one of them has read that by now; the other, and both kernel threads, end with the writers.
  close(other[1]);
  close(replaced[1]);
  intptr_t sum = join(one) + join(two);
  CHECK(sum == 0 || (sum == 3 && (memcmp(first, "new", 3) == 0 || memcmp(second, "new", 3) == 0)));
  close(old), close(other[0]), close(replaced[0]);
  return NULL;
}

int main(void) {
  CHECK(mkdtemp(folder) != NULL);
  join(start(opens, 0));
  snprintf(fifo, sizeof fifo, "%s/fifo", folder);
  CHECK(mkfifo(fifo, 0600) == 0);
  test_fifo();
  test_fifo_interrupts();
  join(start(nonblocking, 0));
  join(start(low_water, 0));
  join(start(low_water, 1));
  join(start(replaces, 0));
  CHECK(unlink(fifo) == 0 && rmdir(folder) == 0);
  puts("descriptors: ok");
  return 0;
}
