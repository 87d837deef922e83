/* Mutexes of each kind: exclusion, error numbers, timed locks, robustness, sharing. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, ROUNDS = 4000 };

static struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void *run(void *(*f)(void *), void *argument) {
    pthread_t thread;
    void *result;
    IS(pthread_create(&thread, NULL, f, argument), 0);
    IS(pthread_join(thread, &result), 0);
    return result;
}

static void init(pthread_mutex_t *mutex, int type, int robust, int shared, int protocol) {
    pthread_mutexattr_t attr;
    IS(pthread_mutexattr_init(&attr), 0);
    IS(pthread_mutexattr_settype(&attr, type), 0);
    IS(pthread_mutexattr_setrobust(&attr, robust), 0);
    IS(pthread_mutexattr_setpshared(&attr, shared), 0);
    IS(pthread_mutexattr_setprotocol(&attr, protocol), 0);
    IS(pthread_mutex_init(mutex, &attr), 0);
    IS(pthread_mutexattr_destroy(&attr), 0);
}

/* Exclusion, among tasks and the program's first thread. */

struct shared {
    pthread_mutex_t mutex;
    long counter, inside;
};

static void *count(void *argument) {
    struct shared *shared = argument;
    for (int i = 0; i < ROUNDS; i++) {
        int how = i % 8;
        struct timespec far = in_ms(CLOCK_REALTIME, 600000);
        if (how == 1)
            IS(pthread_mutex_timedlock(&shared->mutex, &far), 0);
        else if (how != 0 || pthread_mutex_trylock(&shared->mutex) != 0)
            IS(pthread_mutex_lock(&shared->mutex), 0);
        IS(shared->inside++, 0);
        shared->counter++;
        if (i % 256 == 0)
            sched_yield();
        shared->inside--;
        IS(pthread_mutex_unlock(&shared->mutex), 0);
    }
    return NULL;
}

static void excludes(struct shared *shared) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        IS(pthread_create(&threads[i], NULL, count, shared), 0);
    count(shared);
    for (int i = 0; i < THREADS; i++)
        IS(pthread_join(threads[i], NULL), 0);
    IS(shared->counter, (THREADS + 1) * ROUNDS);
    IS(pthread_mutex_destroy(&shared->mutex), 0);
}

static void exclusion(void) {
    static struct shared fixed[] = {
        {.mutex = PTHREAD_MUTEX_INITIALIZER},
        {.mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP},
        {.mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP},
        {.mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP},
    };
    for (int i = 0; i < 4; i++)
        excludes(&fixed[i]);
    for (int type = 0; type < 4; type++) {
        struct shared robust = {.counter = 0}, processes = {.counter = 0}, inherit = {.counter = 0};
        init(&robust.mutex, type, PTHREAD_MUTEX_ROBUST, 0, PTHREAD_PRIO_NONE);
        excludes(&robust);
        init(&processes.mutex, type, 0, PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE);
        excludes(&processes);
        init(&inherit.mutex, type, 0, 0, PTHREAD_PRIO_INHERIT);
        excludes(&inherit);
    }
}

/* What the holder, and what another thread, is answered. */

static void *as_other(void *argument) {
    pthread_mutex_t *mutex = argument;
    struct timespec past = {0, 0}, wrong = {0, 1000000000}, negative = {0, -1};
    struct timespec soon = in_ms(CLOCK_REALTIME, 20), later = in_ms(CLOCK_MONOTONIC, 20);
    IS(pthread_mutex_trylock(mutex), EBUSY);
    IS(pthread_mutex_timedlock(mutex, &past), ETIMEDOUT);
    IS(pthread_mutex_timedlock(mutex, &wrong), EINVAL);
    IS(pthread_mutex_timedlock(mutex, &negative), EINVAL);
    IS(pthread_mutex_clocklock(mutex, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
    IS(pthread_mutex_timedlock(mutex, &soon), ETIMEDOUT);
    IS(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &later), ETIMEDOUT);
    struct timespec now = in_ms(CLOCK_MONOTONIC, 0);
    CHECK(now.tv_sec > later.tv_sec || (now.tv_sec == later.tv_sec && now.tv_nsec >= later.tv_nsec));
    return NULL;
}

static void *unlock_fails(void *argument) {
    IS(pthread_mutex_unlock(argument), EPERM);
    return NULL;
}

static void *answers(void *unused) {
    struct timespec wrong = {0, 1000000000};
    pthread_mutex_t mutex;
    for (int robust = 0; robust < 2; robust++) {
        init(&mutex, PTHREAD_MUTEX_NORMAL, robust, 0, 0);
        IS(pthread_mutex_lock(&mutex), 0);
        run(as_other, &mutex);
        IS(pthread_mutex_trylock(&mutex), EBUSY);
        if (!robust)
            IS(pthread_mutex_destroy(&mutex), EBUSY);
        IS(pthread_mutex_unlock(&mutex), 0);
        /* Who need not wait does not learn that the time makes no sense. */
        IS(pthread_mutex_timedlock(&mutex, &wrong), 0);
        IS(pthread_mutex_unlock(&mutex), 0);
        IS(pthread_mutex_destroy(&mutex), 0);
    }
    for (int robust = 0; robust < 2; robust++) {
        init(&mutex, PTHREAD_MUTEX_RECURSIVE, robust, 0, 0);
        run(unlock_fails, &mutex);
        IS(pthread_mutex_lock(&mutex), 0);
        IS(pthread_mutex_lock(&mutex), 0);
        IS(pthread_mutex_trylock(&mutex), 0);
        IS(pthread_mutex_timedlock(&mutex, &wrong), 0);
        for (int i = 0; i < 4; i++) {
            run(as_other, &mutex);
            run(unlock_fails, &mutex);
            IS(pthread_mutex_unlock(&mutex), 0);
        }
        IS(pthread_mutex_unlock(&mutex), EPERM);
        IS(mutex.__data.__lock, 0);
        IS(pthread_mutex_destroy(&mutex), 0);

        init(&mutex, PTHREAD_MUTEX_ERRORCHECK, robust, 0, 0);
        IS(pthread_mutex_unlock(&mutex), EPERM);
        IS(pthread_mutex_lock(&mutex), 0);
        IS(pthread_mutex_lock(&mutex), EDEADLK);
        IS(pthread_mutex_timedlock(&mutex, &wrong), EDEADLK);
        IS(pthread_mutex_trylock(&mutex), robust ? EDEADLK : EBUSY);
        run(as_other, &mutex);
        run(unlock_fails, &mutex);
        IS(pthread_mutex_unlock(&mutex), 0);
        IS(pthread_mutex_destroy(&mutex), 0);
    }
    /* At its limit, a recursive mutex refuses. */
    init(&mutex, PTHREAD_MUTEX_RECURSIVE, 0, 0, 0);
    IS(pthread_mutex_lock(&mutex), 0);
    mutex.__data.__count = ~0u;
    IS(pthread_mutex_lock(&mutex), EAGAIN);
    IS(pthread_mutex_trylock(&mutex), EAGAIN);
    mutex.__data.__count = 1;
    IS(pthread_mutex_unlock(&mutex), 0);
    IS(mutex.__data.__owner, 0);
    IS(mutex.__data.__nusers, 0);
    return unused;
}

/* A lock that is waited for, and gained in time. */

static void *wait_for(void *argument) {
    struct timespec far = in_ms(CLOCK_REALTIME, 600000);
    IS(pthread_mutex_timedlock(argument, &far), 0);
    IS(pthread_mutex_unlock(argument), 0);
    return NULL;
}

static void waits(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[THREADS];
    IS(pthread_mutex_lock(&mutex), 0);
    for (int i = 0; i < THREADS; i++)
        IS(pthread_create(&threads[i], NULL, wait_for, &mutex), 0);
    usleep(20000);
    IS(pthread_mutex_unlock(&mutex), 0);
    for (int i = 0; i < THREADS; i++)
        IS(pthread_join(threads[i], NULL), 0);
    IS(mutex.__data.__lock & ~3, 0);
}

/* A lock by trylock alone, whose holder lets others run: they must let it run, too. */

static void *spin(void *argument) {
    struct shared *shared = argument;
    for (int i = 0; i < 20; i++) {
        while (pthread_mutex_trylock(&shared->mutex) != 0)
            ;
        shared->counter++;
        sched_yield();
        IS(pthread_mutex_unlock(&shared->mutex), 0);
    }
    return NULL;
}

static void spins(void) {
    struct shared shared = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        IS(pthread_create(&threads[i], NULL, spin, &shared), 0);
    for (int i = 0; i < 4; i++)
        IS(pthread_join(threads[i], NULL), 0);
    IS(shared.counter, 4 * 20);
}

/* The death of a holder. */

static pthread_mutex_t held[3];

static void *die(void *how) {
    for (int i = 0; i < 3; i++)
        IS(pthread_mutex_lock(&held[i]), 0);
    /* One from the middle of what the thread holds. */
    IS(pthread_mutex_unlock(&held[1]), 0);
    if (how == NULL)
        usleep(10000);
    else
        pthread_exit(NULL);
    return NULL;
}

static void *inherits(void *argument) {
    int result = pthread_mutex_lock(argument);
    if (result == EOWNERDEAD)
        IS(pthread_mutex_consistent(argument), 0);
    if (result != ENOTRECOVERABLE)
        IS(pthread_mutex_unlock(argument), 0);
    return (void *)(long)result;
}

static void *deaths(void *unused) {
    pthread_t threads[THREADS];
    void *result;
    for (int type = 0; type < 4; type++) {
        for (int i = 0; i < 3; i++)
            init(&held[i], type, PTHREAD_MUTEX_ROBUST, 0, 0);
        IS(pthread_mutex_consistent(&held[0]), EINVAL);
        run(die, type % 2 ? &held : NULL);
        IS(pthread_mutex_trylock(&held[0]), EOWNERDEAD);
        IS(pthread_mutex_lock(&held[1]), 0);
        IS(pthread_mutex_unlock(&held[1]), 0);
        IS((long)run(inherits, &held[2]), EOWNERDEAD);
        IS((long)run(inherits, &held[2]), 0);
        /* Unlocked as it was found: lost. */
        IS(pthread_mutex_unlock(&held[0]), 0);
        IS(pthread_mutex_lock(&held[0]), ENOTRECOVERABLE);
        IS((long)run(inherits, &held[0]), ENOTRECOVERABLE);
        /* The last call: glibc 2.36 leaves the mutex locked after it. */
        IS(pthread_mutex_trylock(&held[0]), ENOTRECOVERABLE);
        for (int i = 0; i < 3; i++)
            IS(pthread_mutex_destroy(&held[i]), 0);
    }
    /* Those that wait when the holder dies: one inherits, the others lock. */
    for (int i = 0; i < 3; i++)
        init(&held[i], PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, 0, 0);
    pthread_t holder;
    IS(pthread_create(&holder, NULL, die, NULL), 0);
    while (__atomic_load_n(&held[2].__data.__lock, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
    for (int i = 0; i < THREADS; i++)
        IS(pthread_create(&threads[i], NULL, inherits, &held[i % 2 ? 0 : 2]), 0);
    int dead = 0, fine = 0;
    for (int i = 0; i < THREADS; i++) {
        IS(pthread_join(threads[i], &result), 0);
        dead += (long)result == EOWNERDEAD;
        fine += result == NULL;
    }
    IS(pthread_join(holder, NULL), 0);
    IS(dead, 2);
    IS(fine, THREADS - 2);
    /* One that waits when it is lost. (Of several, glibc 2.36 wakes only the first.) */
    run(die, NULL);
    IS(pthread_mutex_lock(&held[0]), EOWNERDEAD);
    IS(pthread_create(&threads[0], NULL, inherits, &held[0]), 0);
    usleep(20000);
    IS(pthread_mutex_unlock(&held[0]), 0);
    IS(pthread_join(threads[0], &result), 0);
    IS((long)result, ENOTRECOVERABLE);
    return unused;
}

/* A thread with a stack of the program's own, which is a kernel thread under Heddle, too. */
static void kernel_thread_dies(void) {
    pthread_t thread;
    pthread_attr_t attr;
    size_t size = 1 << 20;
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    IS(pthread_attr_init(&attr), 0);
    IS(pthread_attr_setstack(&attr, stack, size), 0);
    for (int i = 0; i < 3; i++)
        init(&held[i], PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, 0, 0);
    IS(pthread_create(&thread, &attr, die, NULL), 0);
    while (__atomic_load_n(&held[2].__data.__lock, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
    IS((long)run(inherits, &held[0]), EOWNERDEAD);
    IS(pthread_join(thread, NULL), 0);
    IS((long)run(inherits, &held[2]), EOWNERDEAD);
    IS((long)run(inherits, &held[1]), 0);
}

/* Two processes. */

static void *shared_count(void *argument) {
    struct shared *shared = argument;
    for (int i = 0; i < ROUNDS; i++) {
        IS(pthread_mutex_lock(&shared->mutex), 0);
        shared->counter++;
        IS(pthread_mutex_unlock(&shared->mutex), 0);
    }
    return NULL;
}

static void processes(void) {
    int status;
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    init(&shared->mutex, PTHREAD_MUTEX_NORMAL, 0, PTHREAD_PROCESS_SHARED, 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        shared_count(shared);
        _exit(0);
    }
    run(shared_count, shared);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(shared->counter, 2 * ROUNDS);
}

int main(void) {
    /* Before there is any thread: the fork. */
    processes();
    answers(NULL);
    run(answers, NULL);
    exclusion();
    waits();
    spins();
    deaths(NULL);
    run(deaths, NULL);
    kernel_thread_dies();
    return 0;
}
