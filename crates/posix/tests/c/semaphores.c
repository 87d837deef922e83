// Semaphores: every call, its errors and timed waits, contention, cancellation. The main thread takes part.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAILS(call, error) do { errno = 0; IS(call, -1); IS(errno, error); } while (0)

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

static int value(sem_t *s)
{
    int v = -1;
    IS(sem_getvalue(s, &v), 0);
    return v;
}

static void *errors(void *arg)
{
    sem_t s;
    struct timespec bad = { 0, 1000000000 }, past = { 1, 0 }, t;
    FAILS(sem_init(&s, 0, (unsigned)SEM_VALUE_MAX + 1), EINVAL);
    IS(sem_init(&s, 0, SEM_VALUE_MAX), 0);
    FAILS(sem_post(&s), EOVERFLOW);
    IS(value(&s), SEM_VALUE_MAX);
    IS(sem_wait(&s), 0);
    IS(sem_post(&s), 0);
    IS(sem_destroy(&s), 0);

    IS(sem_init(&s, 0, 3), 0);
    IS(sem_wait(&s), 0);
    IS(sem_trywait(&s), 0);
    IS(sem_timedwait(&s, &past), 0);
    IS(value(&s), 0);
    FAILS(sem_trywait(&s), EAGAIN);
    FAILS(sem_timedwait(&s, &bad), EINVAL);
    FAILS(sem_clockwait(&s, CLOCK_MONOTONIC, &bad), EINVAL);
    FAILS(sem_clockwait(&s, CLOCK_PROCESS_CPUTIME_ID, &past), EINVAL);
    FAILS(sem_timedwait(&s, &past), ETIMEDOUT);
    t = after(CLOCK_REALTIME, 20);
    FAILS(sem_timedwait(&s, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, &t));
    t = after(CLOCK_MONOTONIC, 20);
    FAILS(sem_clockwait(&s, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, &t));
    IS(sem_post(&s), 0);
    IS(value(&s), 1);
    IS(sem_clockwait(&s, CLOCK_MONOTONIC, &t), 0);
    IS(sem_destroy(&s), 0);
    return arg;
}

// Each thread takes from one semaphore and gives to the next, in a ring.
enum { RING = 16, TOKENS = 5, LAPS = 2000 };
static sem_t ring[RING];

static void *passes_on(void *arg)
{
    long i = (long)arg;
    for (int n = 0; n < LAPS; n++) {
        struct timespec t = after(CLOCK_REALTIME, 60000);
        if (n % 2)
            IS(sem_wait(&ring[i]), 0);
        else
            IS(sem_timedwait(&ring[i], &t), 0);
        IS(sem_post(&ring[(i + 1) % RING]), 0);
    }
    return NULL;
}

static void in_a_ring(int shared)
{
    pthread_t t[RING];
    int left = 0;
    for (int i = 0; i < RING; i++)
        IS(sem_init(&ring[i], shared, i < TOKENS), 0);
    for (long i = 1; i < RING; i++)
        IS(pthread_create(&t[i], NULL, passes_on, (void *)i), 0);
    passes_on((void *)0);
    for (int i = 1; i < RING; i++)
        IS(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < RING; i++) {
        left += value(&ring[i]);
        IS(sem_destroy(&ring[i]), 0);
    }
    IS(left, TOKENS);
}

// Many threads at one semaphore, some of which give up. What was posted is taken or left over.
static sem_t one;
static int taken;

static void *takes(void *arg)
{
    for (int i = 0; i < 500; i++) {
        struct timespec t = after(CLOCK_MONOTONIC, 0);
        t.tv_nsec += t.tv_nsec < 999900000 ? 50000 : 0;
        int got = i % 2 ? sem_clockwait(&one, CLOCK_MONOTONIC, &t) : sem_wait(&one);
        CHECK(got == 0 || (i % 2 && errno == ETIMEDOUT));
        if (got == 0)
            __atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST);
    }
    return arg;
}

static void with_some_who_give_up(void)
{
    enum { TAKERS = 12 };
    pthread_t t[TAKERS];
    IS(sem_init(&one, 0, 0), 0);
    for (int i = 0; i < TAKERS; i++)
        IS(pthread_create(&t[i], NULL, takes, NULL), 0);
    for (int i = 0; i < TAKERS * 500; i++) {
        IS(sem_post(&one), 0);
        if (i % 64 == 0)
            sched_yield();
    }
    for (int i = 0; i < TAKERS; i++)
        IS(pthread_join(t[i], NULL), 0);
    IS(taken + value(&one), TAKERS * 500);
    IS(sem_destroy(&one), 0);
}

// The waiter frees the semaphore as soon as it has it.
static void *posts(void *arg)
{
    IS(sem_post(arg), 0);
    return NULL;
}

static void freed_by_waiter(void)
{
    for (int i = 0; i < 500; i++) {
        pthread_t t;
        sem_t *s = malloc(sizeof *s);
        IS(sem_init(s, 0, 0), 0);
        IS(pthread_create(&t, NULL, posts, s), 0);
        IS(sem_wait(s), 0);
        IS(sem_destroy(s), 0);
        memset(s, 0xff, sizeof *s);
        free(s);
        IS(pthread_join(t, NULL), 0);
    }
}

static int cleaned;

static void cleans(void *arg)
{
    (void)arg;
    cleaned++;
}

static void *waits_to_be_cancelled(void *s)
{
    pthread_cleanup_push(cleans, NULL);
    sem_wait(s);
    printf("semaphores.c: sem_wait came back in a cancelled thread\n");
    exit(1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waits_long_to_be_cancelled(void *s)
{
    struct timespec t = after(CLOCK_REALTIME, 60000);
    pthread_cleanup_push(cleans, NULL);
    sem_timedwait(s, &t);
    printf("semaphores.c: sem_timedwait came back in a cancelled thread\n");
    exit(1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *is_cancelled_before_it_takes(void *s)
{
    int old;
    IS(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old), 0);
    IS(pthread_cancel(pthread_self()), 0);
    IS(sem_wait(s), 0);
    IS(sem_post(s), 0);
    IS(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old), 0);
    sem_wait(s);
    printf("semaphores.c: sem_wait is no cancellation point if it need not wait\n");
    exit(1);
}

static void cancellation(void)
{
    sem_t s;
    pthread_t t;
    void *result;
    IS(sem_init(&s, 0, 0), 0);
    IS(pthread_create(&t, NULL, waits_to_be_cancelled, &s), 0);
    usleep(20000);
    IS(pthread_cancel(t), 0);
    IS(pthread_join(t, &result), 0);
    CHECK(result == PTHREAD_CANCELED && cleaned == 1);
    // Cancelled before it waits, perhaps before it runs.
    IS(pthread_create(&t, NULL, waits_long_to_be_cancelled, &s), 0);
    IS(pthread_cancel(t), 0);
    IS(pthread_join(t, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    // No thread is counted as a waiter any more.
    IS(sem_post(&s), 0);
    IS(value(&s), 1);
    IS(pthread_create(&t, NULL, is_cancelled_before_it_takes, &s), 0);
    IS(pthread_join(t, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    IS(value(&s), 1);
    IS(sem_destroy(&s), 0);
}

static sem_t *named;

static void *waits_for_named(void *arg)
{
    struct timespec t = after(CLOCK_REALTIME, 10);
    FAILS(sem_trywait(named), EAGAIN);
    FAILS(sem_timedwait(named, &t), ETIMEDOUT);
    IS(sem_post(&one), 0);
    IS(sem_wait(named), 0);
    return arg;
}

static void with_a_name(void)
{
    char name[64];
    pthread_t t;
    snprintf(name, sizeof name, "/heddle-test-%d", getpid());
    named = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    if (named == SEM_FAILED)
        return;
    IS(sem_unlink(name), 0);
    IS(sem_init(&one, 0, 0), 0);
    IS(pthread_create(&t, NULL, waits_for_named, NULL), 0);
    IS(sem_wait(&one), 0);
    usleep(10000);
    IS(sem_post(named), 0);
    IS(pthread_join(t, NULL), 0);
    IS(sem_close(named), 0);
}

int main(void)
{
    pthread_t t;
    errors(NULL);
    IS(pthread_create(&t, NULL, errors, NULL), 0);
    IS(pthread_join(t, NULL), 0);
    in_a_ring(0);
    with_some_who_give_up();
    freed_by_waiter();
    cancellation();
    with_a_name();
    in_a_ring(1);
    return 0;
}
