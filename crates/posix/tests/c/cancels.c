// Cancellation and pthread_exit. Prints what failed; exits with 0 if nothing did.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures;
#define CHECK(c) \
    do { \
        if (!(c)) { \
            printf("%s:%d: %s\n", __func__, __LINE__, #c); \
            failures++; \
        } \
    } while (0)

static atomic_int ready, stop, cleaned, destroyed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int ends[2];
static pthread_key_t key;

static void clean(void *by) { cleaned += (int)(intptr_t)by; }

// As a C++ destructor would be: only with -fexceptions does unwinding find it.
static void destroy(int *by) { destroyed += *by; }
#ifdef __EXCEPTIONS
enum { UNWINDS = 1 };
#else
enum { UNWINDS = 0 };
#endif

static void until(atomic_int *what, int value) {
    while (*what < value)
        sched_yield();
}

static void nap(void) {
    struct timespec time = {0, 10000000};
    while (nanosleep(&time, &time) != 0)
        ;
}

#define POINT(name, call) \
    static void *name(void *unused) { \
        int own __attribute__((cleanup(destroy))) = 1; \
        pthread_setspecific(key, &cleaned); \
        pthread_cleanup_push(clean, (void *)1); \
        ready = 1; \
        for (;;) \
            call; \
        pthread_cleanup_pop(0); \
        return NULL; \
    }

static struct timespec long_time = {1000, 0};
static char byte;

POINT(tests, pthread_testcancel())
POINT(sleeps, nanosleep(&long_time, NULL))
POINT(sleeps_seconds, sleep(1000))
POINT(waits_for_sem, sem_wait(&sem))
POINT(reads, (void)!read(ends[0], &byte, 1))
POINT(pauses, pause())
POINT(waits_for_child, waitpid(-1, NULL, 0))

static void *waits_for_cond(void *unused) {
    int own __attribute__((cleanup(destroy))) = 1;
    pthread_setspecific(key, &cleaned);
    pthread_mutex_lock(&mutex);
    // The mutex is held again when this runs.
    pthread_cleanup_push((void (*)(void *))pthread_mutex_unlock, &mutex);
    pthread_cleanup_push(clean, (void *)1);
    ready = 1;
    for (;;)
        pthread_cond_wait(&cond, &mutex);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waits_for_signal(void *unused) {
    int own __attribute__((cleanup(destroy))) = 1;
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_setspecific(key, &cleaned);
    pthread_cleanup_push(clean, (void *)1);
    ready = 1;
    for (;;)
        sigwait(&set, &signal);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *sleeper(void *unused) {
    until(&stop, 1);
    return NULL;
}

static pthread_t joined;

static void *joins(void *unused) {
    int own __attribute__((cleanup(destroy))) = 1;
    pthread_setspecific(key, &cleaned);
    pthread_cleanup_push(clean, (void *)1);
    ready = 1;
    pthread_join(joined, NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

// Computes, and is cancelled where it happens to be.
static void *computes(void *unused) {
    int own __attribute__((cleanup(destroy))) = 1;
    pthread_setspecific(key, &cleaned);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(clean, (void *)1);
    volatile unsigned long x = 0;
    ready = 1;
    for (;;)
        x++;
    pthread_cleanup_pop(0);
    return NULL;
}

static void is_cancelled(const char *name, void *(*f)(void *), int early) {
    pthread_t thread;
    void *result = NULL;
    ready = cleaned = destroyed = 0;
    CHECK(pthread_create(&thread, NULL, f, NULL) == 0);
    if (!early) {
        until(&ready, 1);
        nap();
    }
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    // With -fexceptions the compiler omits what only an asynchronous cancellation could need.
    int is_async = f == computes;
    int wanted = is_async && UNWINDS ? 100 : 101;
    if (result != PTHREAD_CANCELED ||
        (!early && (cleaned != wanted || destroyed != (UNWINDS && !is_async)))) {
        printf("%s: result %p, cleaned %d, destroyed %d\n", name, result, cleaned, destroyed);
        failures++;
    }
}

static void *disabled(void *unused) {
    int old;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old) == 0 && old == PTHREAD_CANCEL_ENABLE);
    ready = 1;
    until(&stop, 1);
    pthread_testcancel();
    struct timespec time = {0, 1000};
    CHECK(nanosleep(&time, NULL) == 0);
    cleaned = 7;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old) == 0 && old == PTHREAD_CANCEL_DISABLE);
    pthread_testcancel();
    cleaned = 8;
    return NULL;
}

static void *deferred(void *unused) {
    int old;
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old) == 0 && old == PTHREAD_CANCEL_DEFERRED);
    CHECK(pthread_setcanceltype(99, &old) == EINVAL && pthread_setcancelstate(99, &old) == EINVAL);
    ready = 1;
    until(&stop, 1);
    cleaned = 7;
    pthread_testcancel();
    cleaned = 8;
    return NULL;
}

static void is_cancelled_late(void *(*f)(void *)) {
    pthread_t thread;
    void *result;
    ready = stop = cleaned = 0;
    pthread_create(&thread, NULL, f, NULL);
    until(&ready, 1);
    CHECK(pthread_cancel(thread) == 0);
    stop = 1;
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && cleaned == 7);
}

static void *cancels_itself(void *unused) {
    int own __attribute__((cleanup(destroy))) = 1;
    pthread_setspecific(key, &cleaned);
    pthread_cleanup_push(clean, (void *)1);
    ready = 1;
    pthread_cancel(pthread_self());
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
static void leave(int frames) {
    int own __attribute__((cleanup(destroy))) = 1;
    pthread_cleanup_push(clean, (void *)1);
    if (frames == 0)
        pthread_exit((void *)42);
    leave(frames - 1);
    pthread_cleanup_pop(0);
}

static void *leaves(void *unused) {
    leave(9);
    return NULL;
}

static void on_signal(int signal) { pthread_exit((void *)43); }

static void *leaves_from_handler(void *unused) {
    pthread_cleanup_push(clean, (void *)1);
    raise(SIGUSR1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void destroy_key(void *value) { cleaned += 100; }

static void *many(void *unused) {
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, i % 2 ? leaves : cancels_itself, NULL);
        pthread_join(thread, &result);
        CHECK(result == (i % 2 ? (void *)42 : PTHREAD_CANCELED));
    }
    return NULL;
}

// A thread on a stack of the program's own, which is a kernel thread, is cancelled while it waits.
static void is_cancelled_on_own_stack(const char *name, void *(*run)(void *)) {
    static _Alignas(4096) char stack[1 << 18];
    pthread_attr_t attr;
    pthread_t thread;
    void *result = NULL;
    ready = cleaned = destroyed = 0;
    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstack(&attr, stack, sizeof stack) == 0);
    CHECK(pthread_create(&thread, &attr, run, NULL) == 0);
    until(&ready, 1);
    nap();
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    if (result != PTHREAD_CANCELED || cleaned < 1 || destroyed != UNWINDS) {
        printf("%s on its own stack: %p, %d, %d\n", name, result, (int)cleaned, (int)destroyed);
        failures++;
    }
    pthread_attr_destroy(&attr);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    sem_init(&sem, 0, 0);
    CHECK(pipe(ends) == 0);
    pthread_key_create(&key, destroy_key);
#define TEST(f) is_cancelled(#f, f, 0), is_cancelled(#f, f, 1)
    TEST(tests);
    TEST(sleeps);
    TEST(sleeps_seconds);
    TEST(waits_for_sem);
    TEST(reads);
    TEST(pauses);
    TEST(waits_for_cond);
    TEST(waits_for_signal);
    for (int i = 0; i < 10; i++)
        TEST(computes);
    TEST(cancels_itself);
    is_cancelled_on_own_stack("waits_for_sem", waits_for_sem);
    is_cancelled_on_own_stack("waits_for_cond", waits_for_cond);
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            sleep(1000);
    }
    is_cancelled("waits_for_child", waits_for_child, 0);
    kill(child, SIGKILL);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    stop = 0;
    pthread_create(&joined, NULL, sleeper, NULL);
    TEST(joins);
    stop = 1;
    CHECK(pthread_join(joined, NULL) == 0);
    is_cancelled_late(disabled);
    is_cancelled_late(deferred);

    pthread_t thread;
    void *result;
    cleaned = destroyed = 0;
    pthread_create(&thread, NULL, leaves, NULL);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == (void *)42 && cleaned == 10 && destroyed == 10 * UNWINDS);

    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    cleaned = 0;
    pthread_create(&thread, NULL, leaves_from_handler, NULL);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == (void *)43 && cleaned == !UNWINDS);
    many(NULL);
    pthread_create(&thread, NULL, many, NULL);
    pthread_join(thread, NULL);
    return failures != 0;
}
