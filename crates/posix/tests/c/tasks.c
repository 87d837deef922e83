/* Two named threads that wait, one for a mutex and one on a semaphore, and one that stops in `ready` while they do:
 * at a debugger's breakpoint, or, with an argument, by dying. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
#include "check.h"

pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static sem_t empty;
static int left = 2;

/* A breakpoint here has two functions in one frame. */
static inline __attribute__((always_inline)) void stop_here(void)
{
    __asm__ volatile("nop");
}

__attribute__((noinline)) void ready(void)
{
    stop_here();
}

__attribute__((noinline)) void *wants_mutex(void *argument)
{
    pthread_setname_np(pthread_self(), "for-mutex");
    __atomic_fetch_sub(&left, 1, __ATOMIC_SEQ_CST);
    IS(pthread_mutex_lock(&held), 0);
    IS(pthread_mutex_unlock(&held), 0);
    return argument;
}

__attribute__((noinline)) void *wants_semaphore(void *argument)
{
    pthread_setname_np(pthread_self(), "for-semaphore");
    __atomic_fetch_sub(&left, 1, __ATOMIC_SEQ_CST);
    IS(sem_wait(&empty), 0);
    return argument;
}

static void *stops(void *argument)
{
    while (__atomic_load_n(&left, __ATOMIC_SEQ_CST) > 0)
        usleep(1000);
    /* Both wait by now, or will within the time: only a machine that stands still is slower. */
    usleep(100000);
    ready();
    if (argument)
        abort();
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[3];

    IS(sem_init(&empty, 0, 0), 0);
    IS(pthread_mutex_lock(&held), 0);
    IS(pthread_create(&threads[0], NULL, wants_mutex, NULL), 0);
    IS(pthread_create(&threads[1], NULL, wants_semaphore, NULL), 0);
    IS(pthread_create(&threads[2], NULL, stops, count > 1 ? arguments[1] : NULL), 0);
    IS(pthread_join(threads[2], NULL), 0);
    IS(pthread_mutex_unlock(&held), 0);
    IS(sem_post(&empty), 0);
    for (int i = 0; i < 2; i++)
        IS(pthread_join(threads[i], NULL), 0);
    return 0;
}
