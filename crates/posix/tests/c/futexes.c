// Futexes by syscall(): waits, wakes, masks, requeues, times, errors, with and without the private flag; and the calls
// that are about the calling thread. The main thread takes part.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { \
    printf("futexes.c:%d: not true: %s\n", __LINE__, #x); exit(1); } } while (0)
#define IS(call, want) do { long got_ = (call); if (got_ != (want)) { \
    printf("futexes.c:%d: %s: %ld (errno %d), not %ld\n", __LINE__, #call, got_, errno, (long)(want)); \
    exit(1); } } while (0)
#define FAILS(call, error) do { errno = 0; IS(call, -1); IS(errno, error); } while (0)

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *time, uint32_t *other, uint32_t last)
{
    return syscall(SYS_futex, word, op, value, time, other, last);
}

#define NUMBER(n) ((const struct timespec *)(long)(n))

static struct timespec after(clockid_t clock, long ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static int has_passed(clockid_t clock, const struct timespec *t)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec >= t->tv_nsec);
}

// FUTEX_PRIVATE_FLAG or nothing.
static int flag;

static void *errors(void *arg)
{
    uint32_t words[2] = { 7, 0 }, *w = words;
    uint32_t *odd = (uint32_t *)((char *)w + 1);
    struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 }, past = { 1, 0 }, span = { 0, 20000000 }, t;
    FAILS(futex(w, FUTEX_WAIT | flag, 8, NULL, NULL, 0), EAGAIN);
    FAILS(futex(w, FUTEX_WAIT_BITSET | flag, 8, NULL, NULL, 1), EAGAIN);
    FAILS(futex(w, FUTEX_WAIT | flag, 7, &bad, NULL, 0), EINVAL);
    FAILS(futex(w, FUTEX_WAIT | flag, 7, &negative, NULL, 0), EINVAL);
    FAILS(futex(w, FUTEX_WAIT_BITSET | flag, 7, &bad, NULL, 1), EINVAL);
    FAILS(futex(w, FUTEX_WAIT_BITSET | flag, 7, &past, NULL, 0), EINVAL);
    FAILS(futex(odd, FUTEX_WAIT | flag, 7, &span, NULL, 0), EINVAL);
    FAILS(futex(odd, FUTEX_WAKE | flag, 1, NULL, NULL, 0), EINVAL);
    FAILS(futex(NULL, FUTEX_WAIT | flag, 7, &span, NULL, 0), EFAULT);
    FAILS(futex(w, FUTEX_WAKE_BITSET | flag, 1, NULL, NULL, 0), EINVAL);
    FAILS(futex(w, FUTEX_WAIT_BITSET | flag, 7, &past, NULL, 1), ETIMEDOUT);
    FAILS(futex(w, FUTEX_CMP_REQUEUE | flag, 1, NUMBER(1), w + 1, 8), EAGAIN);
    FAILS(futex(w, FUTEX_REQUEUE | flag, -1, NUMBER(1), w + 1, 0), EINVAL);
    FAILS(futex(w, FUTEX_WAKE | flag | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0), ENOSYS);
    FAILS(futex(w, 99 | flag, 1, NULL, NULL, 0), ENOSYS);
    IS(futex(w, FUTEX_WAKE | flag, 1, NULL, NULL, 0), 0);
    IS(futex(w, FUTEX_CMP_REQUEUE | flag, 1, NUMBER(1), w + 1, 7), 0);

    t = after(CLOCK_MONOTONIC, 20);
    FAILS(futex(w, FUTEX_WAIT | flag, 7, &span, NULL, 0), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, &t));
    t = after(CLOCK_MONOTONIC, 20);
    FAILS(futex(w, FUTEX_WAIT_BITSET | flag, 7, &t, NULL, 1), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, &t));
    t = after(CLOCK_REALTIME, 20);
    FAILS(futex(w, FUTEX_WAIT_BITSET | flag | FUTEX_CLOCK_REALTIME, 7, &t, NULL, 1), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, &t));
    return arg;
}

// A lock of three states, as in "Futexes Are Tricky".
static uint32_t lock;
static volatile long count;

static void take(void)
{
    uint32_t seen = 0;
    if (__atomic_compare_exchange_n(&lock, &seen, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    while (__atomic_exchange_n(&lock, 2, __ATOMIC_SEQ_CST) != 0) {
        struct timespec t = after(CLOCK_MONOTONIC, 60000);
        if (futex(&lock, FUTEX_WAIT_BITSET | flag, 2, &t, NULL, FUTEX_BITSET_MATCH_ANY) != 0)
            CHECK(errno == EAGAIN || errno == EINTR);
    }
}

static void leave(void)
{
    if (__atomic_exchange_n(&lock, 0, __ATOMIC_SEQ_CST) == 2)
        CHECK(futex(&lock, FUTEX_WAKE | flag, 1, NULL, NULL, 0) >= 0);
}

static void *counts(void *arg)
{
    for (int i = 0; i < 3000; i++) {
        take();
        count = count + 1;
        if (i % 32 == 0)
            sched_yield();
        leave();
    }
    return arg;
}

static void contention(void)
{
    pthread_t t[12];
    count = 0;
    for (int i = 0; i < 12; i++)
        IS(pthread_create(&t[i], NULL, counts, NULL), 0);
    counts(NULL);
    for (int i = 0; i < 12; i++)
        IS(pthread_join(t[i], NULL), 0);
    IS(count, 13 * 3000);
}

// Waiters whose number and mask are known.
static uint32_t here, there;
static int awake;

struct waiter {
    pthread_t thread;
    uint32_t bits;
    long result;
};

static void *waits(void *arg)
{
    struct waiter *w = arg;
    do {
        w->result = futex(&here, FUTEX_WAIT_BITSET | flag, 0, NULL, NULL, w->bits);
    } while (w->result != 0 && errno == EINTR);
    __atomic_add_fetch(&awake, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void start(struct waiter *w, int n)
{
    awake = 0;
    for (int i = 0; i < n; i++) {
        w[i].bits = i % 2 ? 2 : 1;
        IS(pthread_create(&w[i].thread, NULL, waits, &w[i]), 0);
    }
    // There is no way to see that they sleep but to wait, or to requeue them onto their own word.
    while (futex(&here, FUTEX_CMP_REQUEUE | flag, 0, NUMBER(n), &there, 0) != n) {
        futex(&there, FUTEX_REQUEUE | flag, 0, NUMBER(n), &here, 0);
        usleep(1000);
    }
    IS(futex(&there, FUTEX_REQUEUE | flag, 0, NUMBER(n), &here, 0), n);
}

static void finish(struct waiter *w, int n)
{
    for (int i = 0; i < n; i++) {
        IS(pthread_join(w[i].thread, NULL), 0);
        IS(w[i].result, 0);
    }
}

static void wake_and_requeue(void)
{
    enum { N = 40 };
    struct waiter w[N];
    start(w, N);
    IS(futex(&here, FUTEX_WAKE_BITSET | flag, INT_MAX, NULL, NULL, 4), 0);
    IS(futex(&here, FUTEX_WAKE_BITSET | flag, 5, NULL, NULL, 2), 5);
    IS(futex(&here, FUTEX_WAKE_BITSET | flag, INT_MAX, NULL, NULL, 2), N / 2 - 5);
    IS(futex(&here, FUTEX_WAKE | flag, 0, NULL, NULL, 0), 1);
    IS(futex(&here, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0), N / 2 - 1);
    IS(futex(&here, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0), 0);
    finish(w, N);

    start(w, N);
    FAILS(futex(&here, FUTEX_CMP_REQUEUE | flag, 1, NUMBER(INT_MAX), &there, 1), EAGAIN);
    IS(futex(&here, FUTEX_CMP_REQUEUE | flag, 3, NUMBER(10), &there, 0), 13);
    IS(futex(&there, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0), 10);
    IS(futex(&here, FUTEX_REQUEUE | flag, 20, NUMBER(INT_MAX), &there, 0), N - 13);
    IS(futex(&here, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0), 0);
    IS(futex(&there, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0), N - 33);
    finish(w, N);
}

static void wake_op(void)
{
    struct waiter w[6];
    uint32_t other = 5;
    start(w, 6);
    IS(futex(&other, FUTEX_WAKE_OP | flag, 1, NUMBER(2), &here, FUTEX_OP(FUTEX_OP_SET, 9, FUTEX_OP_CMP_EQ, 1)), 0);
    IS(here, 9);
    here = 0;
    IS(futex(&here, FUTEX_WAKE_OP | flag, 2, NUMBER(9), &other, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_GT, 5)), 2);
    IS(other, 8);
    IS(futex(&other, FUTEX_WAKE_OP | flag, 1, NUMBER(1), &here, FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LE, 0)), 1);
    IS(futex(&here, FUTEX_WAKE_OP | flag, 1, NUMBER(9), &other, FUTEX_OP(FUTEX_OP_ANDN, 8, FUTEX_OP_CMP_LT, 8)), 1);
    IS(other, 0);
    other = 1;
    IS(futex(&here, FUTEX_WAKE_OP | flag, 1, NUMBER(9), &other,
             FUTEX_OP((FUTEX_OP_XOR | FUTEX_OP_OPARG_SHIFT), 4, FUTEX_OP_CMP_NE, 1)), 1);
    IS(other, 17);
    FAILS(futex(&here, FUTEX_WAKE_OP | flag, 1, NUMBER(9), &other, FUTEX_OP(7, 0, FUTEX_OP_CMP_NE, 1)), ENOSYS);
    other = -3;
    IS(futex(&here, FUTEX_WAKE_OP | flag, 1, NUMBER(9), &other,
             FUTEX_OP(FUTEX_OP_ADD, -2 & 0xfff, FUTEX_OP_CMP_GE, -3 & 0xfff)), 1);
    IS((int)other, -5);
    finish(w, 6);
}

// A word in memory that two processes share: one wakes, the other waits, and back.
static uint32_t *ours;

static void wait_until(uint32_t *word, uint32_t value)
{
    uint32_t now;
    while ((now = __atomic_load_n(word, __ATOMIC_SEQ_CST)) != value)
        if (syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0) != 0)
            CHECK(errno == EAGAIN || errno == EINTR);
}

static void set(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    CHECK(syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) >= 0);
}

static void *talks(void *arg)
{
    for (uint32_t i = 1; i <= 50; i++) {
        set(&ours[0], i);
        wait_until(&ours[1], i);
    }
    return arg;
}

static pid_t child;

static void begin_child(void)
{
    ours = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ours != MAP_FAILED);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (uint32_t i = 1; i <= 50; i++) {
            wait_until(&ours[0], i);
            set(&ours[1], i);
        }
        _exit(0);
    }
}

static void between_processes(void)
{
    pthread_t t;
    int status;
    IS(pthread_create(&t, NULL, talks, NULL), 0);
    IS(pthread_join(t, NULL), 0);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

static void *about_itself(void *arg)
{
    cpu_set_t by_call, by_function;
    struct timespec ms = { 0, 1000000 }, bad = { 0, 1000000000 }, t = after(CLOCK_MONOTONIC, 2);
    pid_t tid = gettid();
    IS(syscall(SYS_gettid), tid);
    CHECK(arg == NULL || *(pid_t *)arg != tid);
    IS(syscall(SYS_sched_yield), 0);
    IS(syscall(SYS_getpid), getpid());
    IS(syscall(SYS_nanosleep, &ms, NULL), 0);
    FAILS(syscall(SYS_nanosleep, &bad, NULL), EINVAL);
    IS(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL), 0);
    CHECK(has_passed(CLOCK_MONOTONIC, &t));
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &bad, NULL), EINVAL);
    CPU_ZERO(&by_call);
    CHECK(syscall(SYS_sched_getaffinity, 0, sizeof by_call, &by_call) >= 8);
    IS(sched_getaffinity(0, sizeof by_function, &by_function), 0);
    CHECK(CPU_EQUAL(&by_call, &by_function));
    IS(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0), 0);
    IS(syscall(SYS_tkill, gettid(), 0), 0);
    FAILS(syscall(9999), ENOSYS);
    FAILS(syscall(SYS_close, -1), EBADF);
    // Six arguments.
    void *page = (void *)syscall(SYS_mmap, NULL, 4096L, (long)PROT_READ, (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
    CHECK(page != MAP_FAILED);
    IS(syscall(SYS_munmap, page, 4096L), 0);
    return NULL;
}

int main(void)
{
    pthread_t t;
    begin_child();
    for (int i = 0; i < 2; i++) {
        flag = i == 0 ? FUTEX_PRIVATE_FLAG : 0;
        errors(NULL);
        IS(pthread_create(&t, NULL, errors, NULL), 0);
        IS(pthread_join(t, NULL), 0);
        contention();
        wake_and_requeue();
        wake_op();
    }
    between_processes();
    pid_t tid = gettid();
    about_itself(NULL);
    IS(tid, getpid());
    IS(pthread_create(&t, NULL, about_itself, &tid), 0);
    IS(pthread_join(t, NULL), 0);
    return 0;
}
