// Sockets, pipes and accept, with more threads than CPUs. Exits with 0, or says what failed.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
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

// Echo on socket pairs.

enum { PAIRS = 16, ROUNDS = 300 };
static int pairs[PAIRS][2];

static void *echo(void *arg) {
  int fd = (int)(intptr_t)arg;
  char buf[256];
  for (;;) {
    ssize_t n = fd % 2 ? recv(fd, buf, sizeof buf, 0) : read(fd, buf, sizeof buf);
    CHECK(n >= 0);
    if (n == 0) return NULL;
    CHECK((fd % 3 ? send(fd, buf, n, 0) : write(fd, buf, n)) == n);
  }
}

static void *ask(void *arg) {
  int fd = (int)(intptr_t)arg;
  for (int i = 0; i < ROUNDS; i++) {
    char out[64], in[64];
    int n = snprintf(out, sizeof out, "message %d of %d", i, fd) + 1;
    CHECK(write(fd, out, n) == n);
    CHECK(read(fd, in, sizeof in) == n);
    CHECK(memcmp(in, out, n) == 0);
  }
  shutdown(fd, SHUT_WR);
  return NULL;
}

static void test_pairs(void) {
  pthread_t threads[2 * PAIRS];
  for (int i = 0; i < PAIRS; i++) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) == 0);
    threads[2 * i] = start(echo, (void *)(intptr_t)pairs[i][0]);
    threads[2 * i + 1] = start(ask, (void *)(intptr_t)pairs[i][1]);
  }
  for (int i = 0; i < 2 * PAIRS; i++) join(threads[i]);
  for (int i = 0; i < PAIRS; i++) close(pairs[i][0]), close(pairs[i][1]);
}

// TCP: several threads accept from one socket, each connection has a thread.

enum { ACCEPTORS = 4, CONNECTIONS = 40 };
static int listener;
static struct sockaddr_in address;

static void *serve(void *arg) {
  int fd = (int)(intptr_t)arg;
  echo((void *)(intptr_t)fd);
  CHECK(close(fd) == 0);
  return NULL;
}

static void *accept_some(void *arg) {
  (void)arg;
  pthread_t servers[CONNECTIONS / ACCEPTORS];
  for (int i = 0; i < CONNECTIONS / ACCEPTORS; i++) {
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    int fd = i % 2 ? accept(listener, (struct sockaddr *)&peer, &size)
                   : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    servers[i] = start(serve, (void *)(intptr_t)fd);
  }
  for (int i = 0; i < CONNECTIONS / ACCEPTORS; i++) join(servers[i]);
  return NULL;
}

static void *connect_one(void *arg) {
  (void)arg;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0);
  CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
  for (int i = 0; i < 20; i++) {
    char out[100], in[100];
    memset(out, i, sizeof out);
    CHECK(send(fd, out, sizeof out, MSG_NOSIGNAL) == sizeof out);
    CHECK(recv(fd, in, sizeof in, MSG_WAITALL) == sizeof in);
    CHECK(memcmp(in, out, sizeof in) == 0);
  }
  CHECK(close(fd) == 0);
  return NULL;
}

static void test_tcp(void) {
  listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(listener >= 0);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  CHECK(bind(listener, (struct sockaddr *)&address, size) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
  CHECK(listen(listener, 128) == 0);
  pthread_t threads[ACCEPTORS + CONNECTIONS];
  for (int i = 0; i < ACCEPTORS; i++) threads[i] = start(accept_some, NULL);
  for (int i = 0; i < CONNECTIONS; i++) threads[ACCEPTORS + i] = start(connect_one, NULL);
  for (int i = 0; i < ACCEPTORS + CONNECTIONS; i++) join(threads[i]);
  close(listener);
}

// Limits of sockets, and non-blocking ones.

static void *timeouts(void *arg) {
  (void)arg;
  int fds[2];
  char buf[16], big[4096];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  struct timeval limit = {0, 30000};
  CHECK(setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  CHECK(setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
  for (int i = 0; i < 3; i++) {
    long begin = ms_now();
    errno = 0;
    ssize_t n = i == 0 ? recv(fds[0], buf, 1, 0) : i == 1 ? read(fds[0], buf, 1)
                : accept(fds[0], NULL, NULL);
    if (i == 2) {
      CHECK(n == -1 && (errno == EINVAL || errno == EOPNOTSUPP));
      break;
    }
    CHECK(n == -1 && errno == EAGAIN);
    CHECK(ms_now() - begin >= 29);
  }
  // Data that come in time end the wait.
  CHECK(write(fds[1], "x", 1) == 1);
  CHECK(recv(fds[0], buf, sizeof buf, 0) == 1);
  // A full socket: part of it, then nothing.
  memset(big, 'b', sizeof big);
  ssize_t n;
  while ((n = send(fds[0], big, sizeof big, 0)) == sizeof big) continue;
  CHECK((n == -1 && errno == EAGAIN) || n > 0);
  CHECK(send(fds[0], big, sizeof big, 0) == -1 && errno == EAGAIN);
  close(fds[0]), close(fds[1]);
  return NULL;
}

static void *nonblocking(void *arg) {
  (void)arg;
  int fds[2];
  char buf[16], big[65536];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  for (int i = 0; i < 3; i++) {
    errno = 0;
    CHECK(recv(fds[0], buf, sizeof buf, 0) == -1 && errno == EAGAIN);
    errno = 0;
    CHECK(read(fds[0], buf, sizeof buf) == -1 && errno == EAGAIN);
    struct iovec part = {buf, sizeof buf};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    errno = 0;
    CHECK(recvmsg(fds[0], &message, 0) == -1 && errno == EAGAIN);
    errno = 0;
    CHECK(readv(fds[0], &part, 1) == -1 && errno == EAGAIN);
  }
  while (send(fds[0], big, sizeof big, 0) > 0) continue;
  CHECK(errno == EAGAIN);
  CHECK(write(fds[0], big, sizeof big) == -1 && errno == EAGAIN);
  // Blocking again: a read waits for the writer.
  CHECK(fcntl(fds[1], F_SETFL, 0) == 0);
  CHECK(recv(fds[1], buf, sizeof buf, 0) == sizeof buf);
  CHECK(recv(fds[0], buf, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  CHECK((fcntl(fds[0], F_GETFL) & O_NONBLOCK) && !(fcntl(fds[1], F_GETFL) & O_NONBLOCK));
  close(fds[0]), close(fds[1]);

  int own = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  CHECK(listen(own, 1) == 0);
  CHECK(accept(own, NULL, NULL) == -1 && errno == EAGAIN);
  CHECK(accept(own, NULL, NULL) == -1 && errno == EAGAIN);
  close(own);
  return NULL;
}

// Sends that are larger than any buffer.

enum { LARGE = 8 << 20 };
static int kind_of_send;

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 7 + (i >> 13)); }

static void *send_large(void *arg) {
  int fd = (int)(intptr_t)arg;
  unsigned char *data = malloc(LARGE);
  for (size_t i = 0; i < LARGE; i++) data[i] = byte_at(i);
  if (kind_of_send == 0) CHECK(send(fd, data, LARGE, 0) == LARGE);
  if (kind_of_send == 1) CHECK(write(fd, data, LARGE) == LARGE);
  if (kind_of_send > 1) {
    enum { PARTS = 64 };
    struct iovec parts[PARTS];
    for (int i = 0; i < PARTS; i++) {
      parts[i].iov_base = data + (size_t)i * (LARGE / PARTS);
      parts[i].iov_len = LARGE / PARTS;
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = PARTS};
    struct mmsghdr many[2];
    memset(many, 0, sizeof many);
    many[0].msg_hdr = many[1].msg_hdr = message;
    many[0].msg_hdr.msg_iovlen = PARTS / 2;
    many[1].msg_hdr.msg_iov = parts + PARTS / 2;
    many[1].msg_hdr.msg_iovlen = PARTS / 2;
    if (kind_of_send == 2) CHECK(sendmsg(fd, &message, 0) == LARGE);
    if (kind_of_send == 3) CHECK(writev(fd, parts, PARTS) == LARGE);
    if (kind_of_send == 4) {
      CHECK(sendmmsg(fd, many, 2, 0) == 2);
      CHECK(many[0].msg_len == LARGE / 2 && many[1].msg_len == LARGE / 2);
    }
  }
  free(data);
  return NULL;
}

static void *receive_large(void *arg) {
  int fd = (int)(intptr_t)arg;
  unsigned char buf[30000];
  size_t at = 0;
  while (at < LARGE) {
    ssize_t n = read(fd, buf, sizeof buf);
    CHECK(n > 0);
    for (ssize_t i = 0; i < n; i++) CHECK(buf[i] == byte_at(at + i));
    at += n;
  }
  return NULL;
}

static void test_large(void) {
  for (kind_of_send = 0; kind_of_send < 5; kind_of_send++) {
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    pthread_t from = start(send_large, (void *)(intptr_t)fds[0]);
    pthread_t to = start(receive_large, (void *)(intptr_t)fds[1]);
    join(from), join(to);
    close(fds[0]), close(fds[1]);
    if (kind_of_send != 1 && kind_of_send != 3) continue;
    CHECK(pipe(fds) == 0);
    from = start(send_large, (void *)(intptr_t)fds[1]);
    to = start(receive_large, (void *)(intptr_t)fds[0]);
    join(from), join(to);
    close(fds[0]), close(fds[1]);
  }
}

// A sender whose peer goes away half way gets a short count, then EPIPE.

static void *send_into_the_void(void *arg) {
  int fd = (int)(intptr_t)arg;
  char *data = calloc(1, LARGE);
  ssize_t n = send(fd, data, LARGE, MSG_NOSIGNAL);
  CHECK(n > 0 && n < LARGE);
  CHECK(send(fd, data, LARGE, MSG_NOSIGNAL) == -1);
  CHECK(errno == EPIPE || errno == ECONNRESET);
  free(data);
  return NULL;
}

static void test_broken(void) {
  int fds[2];
  char buf[100];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  pthread_t thread = start(send_into_the_void, (void *)(intptr_t)fds[0]);
  CHECK(read(fds[1], buf, sizeof buf) == sizeof buf);
  usleep(20000);
  close(fds[1]);
  join(thread);
  close(fds[0]);
}

// Datagrams.

static void *datagrams(void *arg) {
  (void)arg;
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) == 0);
  char a[10], b[10];
  CHECK(write(fds[0], "", 0) == 0 && write(fds[0], "one", 3) == 3 && send(fds[0], "two", 3, 0) == 3);
  CHECK(recv(fds[1], a, 10, 0) == 0);
  CHECK(read(fds[1], a, 10) == 3 && memcmp(a, "one", 3) == 0);
  CHECK(recv(fds[1], a, 2, MSG_WAITALL) == 2);
  struct iovec parts[2] = {{a, 10}, {b, 10}};
  struct mmsghdr many[2];
  memset(many, 0, sizeof many);
  for (int i = 0; i < 2; i++) many[i].msg_hdr.msg_iov = parts + i, many[i].msg_hdr.msg_iovlen = 1;
  CHECK(send(fds[0], "three", 5, 0) == 5 && send(fds[0], "four", 4, 0) == 4);
  CHECK(recvmmsg(fds[1], many, 2, 0, NULL) == 2);
  CHECK(many[0].msg_len == 5 && many[1].msg_len == 4 && memcmp(b, "four", 4) == 0);
  CHECK(send(fds[0], "5", 1, 0) == 1);
  CHECK(recvmmsg(fds[1], many, 2, MSG_WAITFORONE, NULL) == 1);
  close(fds[0]), close(fds[1]);

  int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
  socklen_t size = sizeof to;
  CHECK(bind(in, (struct sockaddr *)&to, size) == 0);
  CHECK(getsockname(in, (struct sockaddr *)&to, &size) == 0);
  CHECK(sendto(out, "udp", 3, 0, (struct sockaddr *)&to, size) == 3);
  size = sizeof from;
  CHECK(recvfrom(in, a, 10, 0, (struct sockaddr *)&from, &size) == 3);
  CHECK(from.sin_family == AF_INET && size == sizeof from);
  close(in), close(out);
  return NULL;
}

// A full queue of another Unix socket: the sender is always "writable".

static void *send_datagrams(void *arg) {
  struct sockaddr_un *to = arg;
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  for (int i = 0; i < 200; i++)
    CHECK(sendto(fd, &i, sizeof i, 0, (struct sockaddr *)to, sizeof *to) == sizeof i);
  close(fd);
  return NULL;
}

static void test_unconnected(void) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  snprintf(to.sun_path + 1, sizeof to.sun_path - 1, "heddle-sockets-%d", getpid());
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  CHECK(bind(fd, (struct sockaddr *)&to, sizeof to) == 0);
  pthread_t thread = start(send_datagrams, &to);
  usleep(20000);
  for (int i = 0, got; i < 200; i++) {
    CHECK(recv(fd, &got, sizeof got, 0) == sizeof got);
    CHECK(got == i);
  }
  join(thread);
  close(fd);
}

// Two threads wait for one descriptor, one in each direction; several for the same one.

static void *read_one(void *arg) {
  char byte;
  ssize_t n = read((int)(intptr_t)arg, &byte, 1);
  return (void *)(intptr_t)n;
}

static void *fill(void *arg) {
  int fd = (int)(intptr_t)arg;
  char *data = calloc(1, 1 << 20);
  CHECK(send(fd, data, 1 << 20, 0) == 1 << 20);
  free(data);
  return NULL;
}

static void test_directions(void) {
  int fds[2];
  char buf[65536];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  pthread_t reader = start(read_one, (void *)(intptr_t)fds[0]);
  pthread_t writer = start(fill, (void *)(intptr_t)fds[0]);
  usleep(10000);
  CHECK(write(fds[1], "x", 1) == 1);
  CHECK((intptr_t)join(reader) == 1);
  for (size_t got = 0; got < 1 << 20;) {
    ssize_t n = read(fds[1], buf, sizeof buf);
    CHECK(n > 0);
    got += n;
  }
  join(writer);
  pthread_t readers[8];
  for (int i = 0; i < 8; i++) readers[i] = start(read_one, (void *)(intptr_t)fds[0]);
  usleep(10000);
  for (int i = 0; i < 4; i++) CHECK(write(fds[1], "y", 1) == 1);
  CHECK(write(fds[1], "yyyy", 4) == 4);
  for (int i = 0; i < 8; i++) CHECK((intptr_t)join(readers[i]) == 1);
  for (int i = 0; i < 8; i++) readers[i] = start(read_one, (void *)(intptr_t)fds[0]);
  usleep(10000);
  close(fds[1]);
  for (int i = 0; i < 8; i++) CHECK((intptr_t)join(readers[i]) == 0);
  close(fds[0]);
}

static void in_thread(void *(*run)(void *)) { join(start(run, NULL)); }

int main(int argc, char **argv) {
  (void)argv;
  signal(SIGPIPE, SIG_IGN);
  int rounds = argc > 1 ? atoi(argv[1]) : 1;
  for (int i = 0; i < rounds; i++) {
    test_pairs();
    test_tcp();
    in_thread(timeouts);
    in_thread(nonblocking);
    test_large();
    test_broken();
    in_thread(datagrams);
    test_unconnected();
    test_directions();
  }
  puts("sockets: ok");
  return 0;
}
