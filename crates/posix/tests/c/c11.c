/* The threads interface of C11. */
#include "check.h"
#include <threads.h>
#include <time.h>

enum { THREADS = 8, ROUNDS = 2000 };

static struct timespec in_ms(long ms) {
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    time.tv_nsec += ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static mtx_t mutex;
static cnd_t cond;
static int turn, counter, ended;

static int counts(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        IS(mtx_lock(&mutex), thrd_success);
        counter++;
        IS(mtx_unlock(&mutex), thrd_success);
    }
    return (int)(long)argument;
}

static int leaves(void *argument) {
    thrd_exit((int)(long)argument - 1);
}

static int takes_turns(void *argument) {
    int own = (int)(long)argument;
    IS(mtx_lock(&mutex), thrd_success);
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec far = in_ms(600000);
        while (turn != own)
            if (i % 2)
                IS(cnd_wait(&cond, &mutex), thrd_success);
            else
                IS(cnd_timedwait(&cond, &mutex, &far), thrd_success);
        turn = (own + 1) % THREADS;
        IS(cnd_broadcast(&cond), thrd_success);
    }
    IS(mtx_unlock(&mutex), thrd_success);
    return 0;
}

static int finds_it_locked(void *unused) {
    struct timespec soon = in_ms(10), wrong = {0, 1000000000};
    IS(mtx_trylock(&mutex), thrd_busy);
    IS(mtx_timedlock(&mutex, &soon), thrd_timedout);
    IS(mtx_timedlock(&mutex, &wrong), thrd_error);
    return unused != NULL;
}

static int is_detached(void *unused) {
    IS(mtx_lock(&mutex), thrd_success);
    ended++;
    IS(cnd_signal(&cond), thrd_success);
    IS(mtx_unlock(&mutex), thrd_success);
    return unused != NULL;
}

static void all(int (*f)(void *), int added) {
    thrd_t threads[THREADS];
    int result;
    for (long i = 0; i < THREADS; i++)
        IS(thrd_create(&threads[i], f, (void *)i), thrd_success);
    for (int i = 0; i < THREADS; i++) {
        IS(thrd_join(threads[i], &result), thrd_success);
        IS(result, f == takes_turns ? 0 : i + added);
    }
}

static int waits(void *unused) {
    struct timespec soon = in_ms(10);
    IS(mtx_lock(&mutex), thrd_success);
    IS(cnd_timedwait(&cond, &mutex, &soon), thrd_timedout);
    IS(mtx_unlock(&mutex), thrd_success);
    return unused != NULL;
}

int main(void) {
    thrd_t thread;
    IS(mtx_init(&mutex, mtx_timed), thrd_success);
    IS(cnd_init(&cond), thrd_success);
    all(counts, 0);
    IS(counter, THREADS * ROUNDS);
    all(leaves, -1);
    all(takes_turns, 0);
    IS(mtx_lock(&mutex), thrd_success);
    IS(thrd_create(&thread, finds_it_locked, NULL), thrd_success);
    IS(thrd_join(thread, NULL), thrd_success);
    IS(mtx_unlock(&mutex), thrd_success);
    IS(thrd_create(&thread, waits, NULL), thrd_success);
    waits(NULL);
    IS(thrd_join(thread, NULL), thrd_success);

    IS(mtx_lock(&mutex), thrd_success);
    IS(thrd_create(&thread, is_detached, NULL), thrd_success);
    IS(thrd_detach(thread), thrd_success);
    while (!ended)
        IS(cnd_wait(&cond, &mutex), thrd_success);
    IS(mtx_unlock(&mutex), thrd_success);
    cnd_destroy(&cond);
    mtx_destroy(&mutex);

    IS(mtx_init(&mutex, mtx_recursive | mtx_timed), thrd_success);
    IS(mtx_lock(&mutex), thrd_success);
    IS(mtx_lock(&mutex), thrd_success);
    IS(mtx_trylock(&mutex), thrd_success);
    IS(mtx_unlock(&mutex), thrd_success);
    IS(mtx_unlock(&mutex), thrd_success);
    IS(thrd_create(&thread, finds_it_locked, NULL), thrd_success);
    IS(thrd_join(thread, NULL), thrd_success);
    IS(mtx_unlock(&mutex), thrd_success);
    mtx_destroy(&mutex);
    return 0;
}
