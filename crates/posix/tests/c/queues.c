// POSIX message queues in threads. Exits with 0, or says what failed.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 4, SIZE = 64, MS = 1000000 };

static mqd_t make(int flags) {
  static int nth;
  char name[64];
  snprintf(name, sizeof name, "/heddle-%d-%d", getpid(), __atomic_fetch_add(&nth, 1, __ATOMIC_RELAXED));
  struct mq_attr attr = {.mq_maxmsg = ROOM, .mq_msgsize = SIZE};
  mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | flags, 0600, &attr);
  CHECK(queue >= 0);
  CHECK(mq_unlink(name) == 0);
  return queue;
}

static pthread_t start(void *(*run)(void *), intptr_t arg) {
  pthread_t thread;
  IS(pthread_create(&thread, NULL, run, (void *)arg), 0);
  return thread;
}

static struct timespec in_ms(long ms) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_nsec += ms * MS;
  t.tv_sec += t.tv_nsec / 1000000000;
  t.tv_nsec %= 1000000000;
  return t;
}

// Several senders and receivers share a queue with little room: nothing is lost, each sender's order is kept.

enum { SENDERS = 3, RECEIVERS = 2, EACH = 500 };
static mqd_t shared;
static int received[SENDERS];

static void *send_many(void *arg) {
  int message[2] = {(int)(intptr_t)arg, 0};
  for (; message[1] < EACH; message[1]++) {
    struct timespec limit = in_ms(60000);
    if (message[1] % 2)
      IS(mq_send(shared, (char *)message, sizeof message, 0), 0);
    else
      IS(mq_timedsend(shared, (char *)message, sizeof message, 0, &limit), 0);
  }
  return NULL;
}

static void *receive_many(void *arg) {
  (void)arg;
  char buffer[SIZE];
  for (;;) {
    int message[2];
    unsigned priority = 7;
    IS(mq_receive(shared, buffer, SIZE, &priority), sizeof message);
    memcpy(message, buffer, sizeof message);
    CHECK(priority == 0);
    if (message[0] < 0) return NULL;
    __atomic_fetch_add(&received[message[0]], 1, __ATOMIC_RELAXED);
  }
}

static void test_shared(void) {
  pthread_t senders[SENDERS], receivers[RECEIVERS];
  shared = make(0);
  memset(received, 0, sizeof received);
  for (int i = 0; i < RECEIVERS; i++) receivers[i] = start(receive_many, 0);
  for (int i = 0; i < SENDERS; i++) senders[i] = start(send_many, i);
  for (int i = 0; i < SENDERS; i++) IS(pthread_join(senders[i], NULL), 0);
  int end[2] = {-1, 0};
  for (int i = 0; i < RECEIVERS; i++) IS(mq_send(shared, (char *)end, sizeof end, 0), 0);
  for (int i = 0; i < RECEIVERS; i++) IS(pthread_join(receivers[i], NULL), 0);
  for (int i = 0; i < SENDERS; i++) IS(received[i], EACH);
  IS(mq_close(shared), 0);
}

static void *edges(void *arg) {
  (void)arg;
  char buffer[SIZE];
  unsigned priority;
  mqd_t queue = make(0);
  struct timespec past = {1, 0}, wrong = {0, 1000000000}, soon;
  CHECK(mq_timedreceive(queue, buffer, SIZE, NULL, &past) == -1 && errno == ETIMEDOUT);
  CHECK(mq_timedreceive(queue, buffer, SIZE, NULL, &wrong) == -1 && errno == EINVAL);
  soon = in_ms(20);
  CHECK(mq_timedreceive(queue, buffer, SIZE, NULL, &soon) == -1 && errno == ETIMEDOUT);
  CHECK(mq_receive(queue, buffer, SIZE - 1, NULL) == -1 && errno == EMSGSIZE);
  CHECK(mq_send(queue, buffer, SIZE + 1, 0) == -1 && errno == EMSGSIZE);
  CHECK(mq_send(queue, buffer, 1, 1 << 20) == -1 && errno == EINVAL);
  // The most urgent first, the oldest of equals.
  for (unsigned i = 0; i < ROOM; i++) {
    buffer[0] = 'a' + i;
    IS(mq_send(queue, buffer, 1, i % 2), 0);
  }
  soon = in_ms(20);
  CHECK(mq_timedsend(queue, buffer, 1, 0, &soon) == -1 && errno == ETIMEDOUT);
  for (const char *want = "bdac"; *want; want++) {
    IS(mq_receive(queue, buffer, SIZE, &priority), 1);
    CHECK(buffer[0] == *want && priority == (*want - 'a') % 2);
  }
  // The descriptor's own flag, set and reset.
  struct mq_attr attr = {.mq_flags = O_NONBLOCK};
  IS(mq_setattr(queue, &attr, NULL), 0);
  CHECK(mq_receive(queue, buffer, SIZE, NULL) == -1 && errno == EAGAIN);
  CHECK(mq_receive(queue, buffer, SIZE, NULL) == -1 && errno == EAGAIN);
  for (int i = 0; i < ROOM; i++) IS(mq_send(queue, "x", 1, 0), 0);
  CHECK(mq_send(queue, "x", 1, 0) == -1 && errno == EAGAIN);
  IS(mq_close(queue), 0);
  CHECK(mq_send(queue, "x", 1, 0) == -1 && errno == EBADF);
  CHECK(mq_receive(-1, buffer, SIZE, NULL) == -1 && errno == EBADF);
  return NULL;
}

// A flag that is reset again: the call waits.
static void *send_later(void *arg) {
  usleep(20000);
  IS(mq_send((mqd_t)(intptr_t)arg, "late", 4, 3), 0);
  return NULL;
}

static void *waits_again(void *arg) {
  (void)arg;
  char buffer[SIZE];
  unsigned priority;
  mqd_t queue = make(O_NONBLOCK);
  CHECK(mq_receive(queue, buffer, SIZE, NULL) == -1 && errno == EAGAIN);
  struct mq_attr attr = {.mq_flags = 0};
  IS(mq_setattr(queue, &attr, NULL), 0);
  pthread_t sender = start(send_later, queue);
  IS(mq_receive(queue, buffer, SIZE, &priority), 4);
  CHECK(memcmp(buffer, "late", 4) == 0 && priority == 3);
  IS(pthread_join(sender, NULL), 0);
  IS(mq_close(queue), 0);
  return NULL;
}

// Signals and cancellation end a wait.
static _Atomic int handled, waiting;

static void handle(int signal) {
  (void)signal;
  handled++;
}

static void *receive_one(void *arg) {
  char buffer[SIZE];
  waiting = 1;
  ssize_t result = mq_receive((mqd_t)(intptr_t)arg, buffer, SIZE, NULL);
  return (void *)(intptr_t)(result < 0 ? -errno : result);
}

static void test_interrupts(void) {
  mqd_t queue = make(0);
  for (int restarts = 0; restarts < 2; restarts++) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = restarts ? SA_RESTART : 0};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    handled = waiting = 0;
    pthread_t receiver = start(receive_one, queue);
    while (!waiting) usleep(1000);
    usleep(20000);
    IS(pthread_kill(receiver, SIGUSR1), 0);
    while (!handled) usleep(1000);
    if (restarts) IS(mq_send(queue, "12345", 5, 0), 0);
    void *result;
    IS(pthread_join(receiver, &result), 0);
    IS((intptr_t)result, restarts ? 5 : -EINTR);
  }
  waiting = 0;
  pthread_t receiver = start(receive_one, queue);
  while (!waiting) usleep(1000);
  IS(pthread_cancel(receiver), 0);
  void *result;
  IS(pthread_join(receiver, &result), 0);
  CHECK(result == PTHREAD_CANCELED);
  IS(mq_close(queue), 0);
}

int main(void) {
  mqd_t probe = mq_open("/heddle-probe", O_RDONLY);
  if (probe < 0 && errno == ENOSYS) {
    puts("queues: skipped: the kernel has no message queues");
    return 0;
  }
  IS(pthread_join(start(edges, 0), NULL), 0);
  IS(pthread_join(start(waits_again, 0), NULL), 0);
  test_shared();
  test_interrupts();
  edges(NULL);
  puts("queues: ok");
  return 0;
}
