// Read-write locks: every call, its errors and timed waits, preference, contention. The main thread takes part.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

// While another thread has the lock as a writer.
static void *tries(void *arg)
{
    (void)arg;
    IS(pthread_rwlock_tryrdlock(&lock), EBUSY);
    IS(pthread_rwlock_trywrlock(&lock), EBUSY);
    struct timespec bad = { 0, 1000000000 }, past = { 1, 0 }, t;
    IS(pthread_rwlock_timedrdlock(&lock, &bad), EINVAL);
    IS(pthread_rwlock_timedwrlock(&lock, &bad), EINVAL);
    IS(pthread_rwlock_clockrdlock(&lock, CLOCK_PROCESS_CPUTIME_ID, &past), EINVAL);
    IS(pthread_rwlock_clockwrlock(&lock, CLOCK_PROCESS_CPUTIME_ID, &past), EINVAL);
    IS(pthread_rwlock_timedrdlock(&lock, &past), ETIMEDOUT);
    IS(pthread_rwlock_timedwrlock(&lock, &past), ETIMEDOUT);
    t = after(CLOCK_REALTIME, 20);
    IS(pthread_rwlock_timedrdlock(&lock, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, &t));
    t = after(CLOCK_REALTIME, 20);
    IS(pthread_rwlock_timedwrlock(&lock, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, &t));
    t = after(CLOCK_MONOTONIC, 20);
    IS(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, &t));
    t = after(CLOCK_MONOTONIC, 20);
    IS(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, &t));
    return NULL;
}

static void *holds_and_lets_try(void *arg)
{
    pthread_t other;
    IS(pthread_rwlock_wrlock(&lock), 0);
    IS(pthread_rwlock_rdlock(&lock), EDEADLK);
    IS(pthread_rwlock_wrlock(&lock), EDEADLK);
    IS(pthread_rwlock_trywrlock(&lock), EBUSY);
    IS(pthread_create(&other, NULL, tries, NULL), 0);
    IS(pthread_join(other, NULL), 0);
    IS(pthread_rwlock_unlock(&lock), 0);
    return arg;
}

static void errors(void)
{
    pthread_t other;
    holds_and_lets_try(NULL);
    IS(pthread_create(&other, NULL, holds_and_lets_try, NULL), 0);
    IS(pthread_join(other, NULL), 0);
    struct timespec t = after(CLOCK_REALTIME, 60000), m = after(CLOCK_MONOTONIC, 60000);
    IS(pthread_rwlock_timedrdlock(&lock, &t), 0);
    IS(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &m), 0);
    IS(pthread_rwlock_tryrdlock(&lock), 0);
    IS(pthread_rwlock_trywrlock(&lock), EBUSY);
    for (int i = 0; i < 3; i++)
        IS(pthread_rwlock_unlock(&lock), 0);
    IS(pthread_rwlock_timedwrlock(&lock, &t), 0);
    IS(pthread_rwlock_unlock(&lock), 0);
    IS(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &m), 0);
    IS(pthread_rwlock_unlock(&lock), 0);
    IS(pthread_rwlock_trywrlock(&lock), 0);
    IS(pthread_rwlock_unlock(&lock), 0);
}

// Contention: the two numbers are equal for who has the lock.
static volatile long one, two;
static int stop_after;

static void *reads(void *arg)
{
    for (int i = 0; i < stop_after; i++) {
        struct timespec t = after(CLOCK_REALTIME, 60000);
        if (i % 3 == 0)
            IS(pthread_rwlock_timedrdlock(&lock, &t), 0);
        else
            IS(pthread_rwlock_rdlock(&lock), 0);
        long a = one;
        if (i % 16 == 0)
            sched_yield();
        CHECK(a == two);
        IS(pthread_rwlock_unlock(&lock), 0);
    }
    return arg;
}

static void *writes(void *arg)
{
    for (int i = 0; i < stop_after; i++) {
        IS(pthread_rwlock_wrlock(&lock), 0);
        one = one + 1;
        if (i % 16 == 0)
            sched_yield();
        two = two + 1;
        IS(pthread_rwlock_unlock(&lock), 0);
    }
    return arg;
}

// Waits that end by their time, between others that do not.
static void *gives_up(void *arg)
{
    for (int i = 0; i < stop_after / 20; i++) {
        struct timespec t = after(CLOCK_MONOTONIC, 0);
        t.tv_nsec += t.tv_nsec < 999900000 ? 50000 : 0;
        int got = i % 2 ? pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &t)
                        : pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &t);
        CHECK(got == 0 || got == ETIMEDOUT);
        if (got == 0)
            IS(pthread_rwlock_unlock(&lock), 0);
    }
    return arg;
}

static void contention(int kind)
{
    enum { READERS = 12, WRITERS = 4, OTHERS = 4 };
    pthread_rwlockattr_t attr;
    pthread_t t[READERS + WRITERS + OTHERS];
    int n = 0;
    IS(pthread_rwlock_destroy(&lock), 0);
    IS(pthread_rwlockattr_init(&attr), 0);
    IS(pthread_rwlockattr_setkind_np(&attr, kind), 0);
    IS(pthread_rwlock_init(&lock, &attr), 0);
    IS(pthread_rwlockattr_destroy(&attr), 0);
    one = two = 0;
    stop_after = 4000;
    for (int i = 0; i < READERS; i++)
        IS(pthread_create(&t[n++], NULL, reads, NULL), 0);
    for (int i = 0; i < WRITERS; i++)
        IS(pthread_create(&t[n++], NULL, writes, NULL), 0);
    for (int i = 0; i < OTHERS; i++)
        IS(pthread_create(&t[n++], NULL, gives_up, NULL), 0);
    writes(NULL);
    reads(NULL);
    for (int i = 0; i < n; i++)
        IS(pthread_join(t[i], NULL), 0);
    CHECK(one == (WRITERS + 1) * stop_after && two == one);
    IS(pthread_rwlock_trywrlock(&lock), 0);
    IS(pthread_rwlock_unlock(&lock), 0);
}

// Preference: with a reader inside and a writer waiting.
static int writer_was_in;
static pthread_rwlock_t preferring;

static void *wants_to_write(void *arg)
{
    IS(pthread_rwlock_wrlock(&preferring), 0);
    __atomic_store_n(&writer_was_in, 1, __ATOMIC_SEQ_CST);
    IS(pthread_rwlock_unlock(&preferring), 0);
    return arg;
}

static void *wants_to_write_for_a_while(void *arg)
{
    struct timespec t = after(CLOCK_REALTIME, 300);
    IS(pthread_rwlock_timedwrlock(&preferring, &t), ETIMEDOUT);
    return arg;
}

static void *wants_to_read(void *arg)
{
    IS(pthread_rwlock_rdlock(&preferring), 0);
    IS(pthread_rwlock_unlock(&preferring), 0);
    return arg;
}

static void preference(void)
{
    pthread_rwlockattr_t attr;
    pthread_t writer, reader, other;
    IS(pthread_rwlockattr_init(&attr), 0);
    IS(pthread_rwlock_init(&preferring, NULL), 0);
    IS(pthread_rwlock_rdlock(&preferring), 0);
    IS(pthread_create(&writer, NULL, wants_to_write, NULL), 0);
    usleep(50000);
    // A reader passes by the writer that waits.
    IS(pthread_create(&reader, NULL, wants_to_read, NULL), 0);
    IS(pthread_join(reader, NULL), 0);
    CHECK(!writer_was_in);
    IS(pthread_rwlock_unlock(&preferring), 0);
    IS(pthread_join(writer, NULL), 0);
    CHECK(writer_was_in);
    IS(pthread_rwlock_destroy(&preferring), 0);

    int kind = 0;
    IS(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP), 0);
    IS(pthread_rwlockattr_getkind_np(&attr, &kind), 0);
    CHECK(kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    IS(pthread_rwlock_init(&preferring, &attr), 0);
    writer_was_in = 0;
    IS(pthread_rwlock_rdlock(&preferring), 0);
    IS(pthread_create(&writer, NULL, wants_to_write, NULL), 0);
    // From when the writer waits, no reader comes in.
    for (;;) {
        struct timespec t = after(CLOCK_REALTIME, 1);
        int got = pthread_rwlock_timedrdlock(&preferring, &t);
        if (got == ETIMEDOUT)
            break;
        IS(got, 0);
        IS(pthread_rwlock_unlock(&preferring), 0);
        sched_yield();
    }
    CHECK(!writer_was_in);
    IS(pthread_create(&reader, NULL, wants_to_read, NULL), 0);
    usleep(20000);
    IS(pthread_rwlock_unlock(&preferring), 0);
    IS(pthread_join(writer, NULL), 0);
    IS(pthread_join(reader, NULL), 0);

    // Readers come in as soon as the last writer gives up.
    IS(pthread_rwlock_rdlock(&preferring), 0);
    IS(pthread_create(&writer, NULL, wants_to_write_for_a_while, NULL), 0);
    usleep(50000);
    IS(pthread_create(&reader, NULL, wants_to_read, NULL), 0);
    IS(pthread_create(&other, NULL, wants_to_read, NULL), 0);
    IS(pthread_join(writer, NULL), 0);
    IS(pthread_join(reader, NULL), 0);
    IS(pthread_join(other, NULL), 0);
    IS(pthread_rwlock_unlock(&preferring), 0);
    IS(pthread_rwlock_destroy(&preferring), 0);
    IS(pthread_rwlockattr_destroy(&attr), 0);
}

// A lock in an object that the last user frees.
struct object {
    pthread_rwlock_t lock;
    int users;
};

static void *uses(void *arg)
{
    struct object *o = arg;
    IS(pthread_rwlock_wrlock(&o->lock), 0);
    int left = --o->users;
    IS(pthread_rwlock_unlock(&o->lock), 0);
    if (left == 0) {
        IS(pthread_rwlock_destroy(&o->lock), 0);
        memset(o, 0xff, sizeof *o);
        free(o);
    }
    return NULL;
}

static void freed_by_last_user(void)
{
    for (int i = 0; i < 500; i++) {
        pthread_t t[3];
        struct object *o = malloc(sizeof *o);
        IS(pthread_rwlock_init(&o->lock, NULL), 0);
        o->users = 4;
        for (int k = 0; k < 3; k++)
            IS(pthread_create(&t[k], NULL, uses, o), 0);
        uses(o);
        for (int k = 0; k < 3; k++)
            IS(pthread_join(t[k], NULL), 0);
    }
}

// A lock that processes may share is the C library's.
static pthread_rwlock_t shared;
static int timed_out;

static void *waits_for_shared(void *arg)
{
    struct timespec t = after(CLOCK_REALTIME, 10);
    IS(pthread_rwlock_tryrdlock(&shared), EBUSY);
    IS(pthread_rwlock_timedwrlock(&shared, &t), ETIMEDOUT);
    __atomic_add_fetch(&timed_out, 1, __ATOMIC_SEQ_CST);
    IS(pthread_rwlock_rdlock(&shared), 0);
    IS(pthread_rwlock_unlock(&shared), 0);
    return arg;
}

static void *holds_shared(void *arg)
{
    pthread_t t[4];
    IS(pthread_rwlock_wrlock(&shared), 0);
    for (int i = 0; i < 4; i++)
        IS(pthread_create(&t[i], NULL, waits_for_shared, NULL), 0);
    while (__atomic_load_n(&timed_out, __ATOMIC_SEQ_CST) != 4)
        usleep(1000);
    IS(pthread_rwlock_unlock(&shared), 0);
    for (int i = 0; i < 4; i++)
        IS(pthread_join(t[i], NULL), 0);
    return arg;
}

static void between_processes(void)
{
    pthread_rwlockattr_t attr;
    IS(pthread_rwlockattr_init(&attr), 0);
    IS(pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
    IS(pthread_rwlock_init(&shared, &attr), 0);
    holds_shared(NULL);
    IS(pthread_rwlock_destroy(&shared), 0);
}

int main(void)
{
    errors();
    preference();
    contention(PTHREAD_RWLOCK_PREFER_READER_NP);
    contention(PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    freed_by_last_user();
    between_processes();
    return 0;
}
