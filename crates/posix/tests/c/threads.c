/* Creation, end, joining, names and thread-local storage. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static __thread int local = 7;
static pthread_key_t key;
static int destroyed;

static void destroy(void *value) {
    CHECK(value != NULL);
    __atomic_fetch_add(&destroyed, 1, __ATOMIC_SEQ_CST);
}

static void leave(void *value) {
    pthread_exit(value);
}

static void count_cleanup(void *counter) {
    __atomic_fetch_add((int *)counter, 1, __ATOMIC_SEQ_CST);
}

static int cleaned;

static void *work(void *argument) {
    long n = (long)argument;
    IS(local, 7);
    IS(errno, 0);
    CHECK(pthread_getspecific(key) == NULL);
    local = (int)n;
    errno = (int)n;
    CHECK(pthread_setspecific(key, (void *)(n + 1)) == 0);
    if (n % 3 == 0) {
        pthread_cleanup_push(count_cleanup, &cleaned);
        leave((void *)(2 * n));
        pthread_cleanup_pop(0);
    }
    if (n % 3 == 1)
        usleep(100);
    sched_yield();
    IS(local, n);
    IS(errno, n);
    return (void *)(2 * n);
}

static void many_threads(void) {
    pthread_t threads[300];
    for (int round = 0; round < 3; round++) {
        for (long n = 0; n < 300; n++)
            IS(pthread_create(&threads[n], NULL, work, (void *)n), 0);
        for (long n = 0; n < 300; n++) {
            void *value;
            IS(pthread_join(threads[n], &value), 0);
            IS((long)value, 2 * n);
        }
    }
    IS(destroyed, 900);
    IS(cleaned, 300);
}

static void *self(void *out) {
    *(pthread_t *)out = pthread_self();
    return NULL;
}

static void *sleeper(void *argument) {
    usleep(20000);
    return argument;
}

static void *joins_itself(void *argument) {
    IS(pthread_join(pthread_self(), NULL), EDEADLK);
    return argument;
}

static void joins(void) {
    pthread_t thread, own;
    IS(pthread_create(&thread, NULL, self, &own), 0);
    IS(pthread_join(thread, NULL), 0);
    CHECK(pthread_equal(thread, own));
    IS(pthread_create(&thread, NULL, joins_itself, NULL), 0);
    IS(pthread_join(thread, NULL), 0);

    struct timespec past = {1, 0};
    IS(pthread_create(&thread, NULL, sleeper, &past), 0);
    IS(pthread_tryjoin_np(thread, NULL), EBUSY);
    IS(pthread_timedjoin_np(thread, NULL, &past), ETIMEDOUT);
    void *value;
    struct timespec later;
    clock_gettime(CLOCK_REALTIME, &later);
    later.tv_sec += 100;
    IS(pthread_timedjoin_np(thread, &value, &later), 0);
    CHECK(value == &past);

    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    IS(pthread_create(&thread, &attr, sleeper, NULL), 0);
    IS(pthread_join(thread, NULL), EINVAL);
    IS(pthread_detach(thread), EINVAL);
    IS(pthread_create(&thread, NULL, sleeper, NULL), 0);
    IS(pthread_detach(thread), 0);
    IS(pthread_detach(thread), EINVAL);
}

static void *deep(void *argument) {
    volatile char frame[6 << 20];
    for (size_t i = 0; i < sizeof frame; i += 4096)
        frame[i] = 1;
    return (void *)(long)(frame[4096] + (long)argument);
}

static void *very_deep(void *argument) {
    volatile char frame[48 << 20];
    for (size_t i = 0; i < sizeof frame; i += 4096)
        frame[i] = 1;
    return (void *)(long)(frame[4096] + (long)argument);
}

static void *minimal(void *argument) {
    char text[64];
    snprintf(text, sizeof text, "%p", argument);
    return argument;
}

static void stacks(void) {
    pthread_t thread;
    void *value;
    IS(pthread_create(&thread, NULL, deep, (void *)1), 0);
    IS(pthread_join(thread, &value), 0);
    IS((long)value, 2);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 50 << 20);
    IS(pthread_create(&thread, &attr, very_deep, (void *)1), 0);
    IS(pthread_join(thread, &value), 0);
    IS((long)value, 2);
    pthread_attr_setstacksize(&attr, sysconf(_SC_THREAD_STACK_MIN));
    IS(pthread_create(&thread, &attr, minimal, NULL), 0);
    IS(pthread_join(thread, NULL), 0);

    static char own[256 << 10] __attribute__((aligned(4096)));
    IS(pthread_attr_setstack(&attr, own, sizeof own), 0);
    IS(pthread_create(&thread, &attr, minimal, NULL), 0);
    IS(pthread_join(thread, NULL), 0);
}

static void *named(void *argument) {
    char name[16];
    IS(pthread_setname_np(pthread_self(), "a name"), 0);
    IS(pthread_setname_np(pthread_self(), "a name that is too long"), ERANGE);
    IS(pthread_getname_np(pthread_self(), name, sizeof name), 0);
    CHECK(strcmp(name, "a name") == 0);
    return argument;
}

static void *spins(void *flag) {
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
        ;
    return NULL;
}

static void *sets(void *flag) {
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* More threads than CPUs wait in a loop for one that comes last. */
static void busy_waiting(void) {
    static int flag;
    pthread_t spinners[8], setter;
    for (int i = 0; i < 8; i++)
        IS(pthread_create(&spinners[i], NULL, spins, &flag), 0);
    IS(pthread_create(&setter, NULL, sets, &flag), 0);
    for (int i = 0; i < 8; i++)
        IS(pthread_join(spinners[i], NULL), 0);
    IS(pthread_join(setter, NULL), 0);
}

static void *last(void *argument) {
    usleep(20000);
    CHECK(argument == NULL);
    return NULL;
}

int main(void) {
    pthread_t thread;
    IS(pthread_key_create(&key, destroy), 0);
    many_threads();
    joins();
    stacks();
    IS(pthread_create(&thread, NULL, named, NULL), 0);
    IS(pthread_join(thread, NULL), 0);
    busy_waiting();
    /* The last thread ends the process. */
    IS(pthread_create(&thread, NULL, last, NULL), 0);
    IS(pthread_detach(thread), 0);
    pthread_exit(NULL);
}
