// Barriers and spin locks.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 24, ROUNDS = 300 };

static pthread_barrier_t barrier;
static int arrived[ROUNDS], serials[ROUNDS];

static void *rounds(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        __atomic_add_fetch(&arrived[i], 1, __ATOMIC_SEQ_CST);
        int got = pthread_barrier_wait(&barrier);
        CHECK(got == 0 || got == PTHREAD_BARRIER_SERIAL_THREAD);
        CHECK(__atomic_load_n(&arrived[i], __ATOMIC_SEQ_CST) == THREADS);
        if (got == PTHREAD_BARRIER_SERIAL_THREAD)
            __atomic_add_fetch(&serials[i], 1, __ATOMIC_SEQ_CST);
    }
    return arg;
}

static void meetings(int shared)
{
    pthread_barrierattr_t attr;
    pthread_t t[THREADS];
    memset(arrived, 0, sizeof arrived);
    memset(serials, 0, sizeof serials);
    IS(pthread_barrierattr_init(&attr), 0);
    IS(pthread_barrierattr_setpshared(&attr, shared), 0);
    IS(pthread_barrier_init(&barrier, &attr, 0), EINVAL);
    IS(pthread_barrier_init(&barrier, &attr, THREADS), 0);
    for (int i = 1; i < THREADS; i++)
        IS(pthread_create(&t[i], NULL, rounds, NULL), 0);
    rounds(NULL);
    for (int i = 1; i < THREADS; i++)
        IS(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < ROUNDS; i++)
        CHECK(serials[i] == 1);
    IS(pthread_barrier_destroy(&barrier), 0);
}

// The serial thread destroys the barrier and frees it while others still leave.
static void *last_one_frees(void *arg)
{
    pthread_barrier_t *b = arg;
    if (pthread_barrier_wait(b) == PTHREAD_BARRIER_SERIAL_THREAD) {
        IS(pthread_barrier_destroy(b), 0);
        memset(b, 0xff, sizeof *b);
        free(b);
    }
    return NULL;
}

static void destroyed_at_once(void)
{
    for (int i = 0; i < 300; i++) {
        pthread_t t[5];
        pthread_barrier_t *b = malloc(sizeof *b);
        IS(pthread_barrier_init(b, NULL, 6), 0);
        for (int k = 0; k < 5; k++)
            IS(pthread_create(&t[k], NULL, last_one_frees, b), 0);
        last_one_frees(b);
        for (int k = 0; k < 5; k++)
            IS(pthread_join(t[k], NULL), 0);
    }
}

// A barrier of one lets everybody pass.
static int serial_count;

static void *waits_often(void *arg)
{
    for (int i = 0; i < 200; i++)
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            __atomic_add_fetch(&serial_count, 1, __ATOMIC_SEQ_CST);
    return arg;
}

static void barrier_of_one(void)
{
    pthread_t t[2];
    IS(pthread_barrier_init(&barrier, NULL, 1), 0);
    for (int i = 0; i < 2; i++)
        IS(pthread_create(&t[i], NULL, waits_often, NULL), 0);
    for (int i = 0; i < 2; i++)
        IS(pthread_join(t[i], NULL), 0);
    CHECK(serial_count == 400);
    IS(pthread_barrier_destroy(&barrier), 0);
}

static pthread_spinlock_t spin;
static volatile long count;

static void *counts(void *arg)
{
    for (int i = 0; i < 20000; i++) {
        while (i % 4 == 0 && pthread_spin_trylock(&spin) == EBUSY)
            ;
        if (i % 4 != 0)
            IS(pthread_spin_lock(&spin), 0);
        count = count + 1;
        IS(pthread_spin_unlock(&spin), 0);
    }
    return arg;
}

static void spin_locks(void)
{
    pthread_t t[8];
    IS(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE), 0);
    CHECK(spin == 1);
    IS(pthread_spin_trylock(&spin), 0);
    IS(pthread_spin_trylock(&spin), EBUSY);
    CHECK(spin <= 0);
    IS(pthread_spin_unlock(&spin), 0);
    CHECK(spin == 1);
    for (int i = 0; i < 8; i++)
        IS(pthread_create(&t[i], NULL, counts, NULL), 0);
    counts(NULL);
    for (int i = 0; i < 8; i++)
        IS(pthread_join(t[i], NULL), 0);
    CHECK(count == 9 * 20000);
    IS(pthread_spin_destroy(&spin), 0);
}

int main(void)
{
    meetings(PTHREAD_PROCESS_PRIVATE);
    destroyed_at_once();
    barrier_of_one();
    spin_locks();
    meetings(PTHREAD_PROCESS_SHARED);
    return 0;
}
