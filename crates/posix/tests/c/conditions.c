/* Condition variables: signals, broadcasts, clocks, cancellation, destruction, sharing. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static int has_come(clockid_t clock, struct timespec time) {
    struct timespec now = in_ms(clock, 0);
    return now.tv_sec > time.tv_sec || (now.tv_sec == time.tv_sec && now.tv_nsec >= time.tv_nsec);
}

static pthread_t start(void *(*f)(void *), void *argument) {
    pthread_t thread;
    IS(pthread_create(&thread, NULL, f, argument), 0);
    return thread;
}

static void *end(pthread_t thread) {
    void *result;
    IS(pthread_join(thread, &result), 0);
    return result;
}

/* A queue of few places, with producers and consumers among tasks and the program's first thread. */

enum { PLACES = 4, EACH = 2000, SIDES = 8 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t not_full, not_empty;
    int len, after;
    long sum;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};

static void produce(void) {
    IS(pthread_mutex_lock(&queue.mutex), 0);
    while (queue.len == PLACES)
        IS(pthread_cond_wait(&queue.not_full, &queue.mutex), 0);
    queue.len++;
    if (!queue.after)
        IS(pthread_cond_signal(&queue.not_empty), 0);
    IS(pthread_mutex_unlock(&queue.mutex), 0);
    if (queue.after)
        IS(pthread_cond_signal(&queue.not_empty), 0);
}

static void consume(void) {
    IS(pthread_mutex_lock(&queue.mutex), 0);
    while (queue.len == 0)
        IS(pthread_cond_wait(&queue.not_empty, &queue.mutex), 0);
    CHECK(queue.len > 0 && queue.len <= PLACES);
    queue.len--;
    queue.sum++;
    if (!queue.after)
        IS(pthread_cond_signal(&queue.not_full), 0);
    IS(pthread_mutex_unlock(&queue.mutex), 0);
    if (queue.after)
        IS(pthread_cond_signal(&queue.not_full), 0);
}

static void *produces(void *unused) {
    for (int i = 0; i < EACH; i++)
        produce();
    return unused;
}

static void *consumes(void *unused) {
    for (int i = 0; i < EACH; i++)
        consume();
    return unused;
}

static void passes_on(int type, int after) {
    pthread_mutexattr_t attr;
    pthread_t threads[2 * SIDES];
    IS(pthread_mutexattr_init(&attr), 0);
    IS(pthread_mutexattr_settype(&attr, type & 3), 0);
    IS(pthread_mutexattr_setrobust(&attr, type > 3), 0);
    IS(pthread_mutex_init(&queue.mutex, &attr), 0);
    queue.sum = 0;
    queue.after = after;
    for (int i = 0; i < SIDES; i++) {
        threads[i] = start(produces, NULL);
        threads[SIDES + i] = start(consumes, NULL);
    }
    for (int i = 0; i < EACH; i++) {
        produce();
        consume();
    }
    for (int i = 0; i < 2 * SIDES; i++)
        end(threads[i]);
    IS(queue.len, 0);
    IS(queue.sum, (SIDES + 1) * EACH);
    IS(pthread_mutex_destroy(&queue.mutex), 0);
}

/* Rounds in which all wait, and one lets them go. */

enum { CROWD = 100 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t go, all;
    int waiting, round, left;
} crowd = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};

static void *waits_with_others(void *unused) {
    IS(pthread_mutex_lock(&crowd.mutex), 0);
    for (int i = 0; i < 20; i++) {
        int round = crowd.round;
        if (++crowd.waiting == CROWD)
            IS(pthread_cond_signal(&crowd.all), 0);
        while (crowd.round == round)
            IS(pthread_cond_wait(&crowd.go, &crowd.mutex), 0);
    }
    crowd.left++;
    IS(pthread_mutex_unlock(&crowd.mutex), 0);
    return unused;
}

static void broadcasts(void) {
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++)
        threads[i] = start(waits_with_others, NULL);
    for (int i = 0; i < 20; i++) {
        IS(pthread_mutex_lock(&crowd.mutex), 0);
        while (crowd.waiting < CROWD)
            IS(pthread_cond_wait(&crowd.all, &crowd.mutex), 0);
        crowd.waiting = 0;
        crowd.round++;
        if (i % 2)
            IS(pthread_cond_broadcast(&crowd.go), 0);
        IS(pthread_mutex_unlock(&crowd.mutex), 0);
        if (i % 2 == 0)
            IS(pthread_cond_broadcast(&crowd.go), 0);
    }
    for (int i = 0; i < CROWD; i++)
        end(threads[i]);
    IS(crowd.left, CROWD);
}

/* The clocks. */

static void *times(void *unused) {
    pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    pthread_cond_t real = PTHREAD_COND_INITIALIZER, monotonic;
    pthread_condattr_t attr;
    struct timespec wrong = {0, 1000000000}, past = {0, 0}, time;
    IS(pthread_condattr_init(&attr), 0);
    IS(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC), 0);
    IS(pthread_cond_init(&monotonic, &attr), 0);

    /* Without the mutex: refused, and no waiter is left behind. */
    IS(pthread_cond_wait(&real, &mutex), EPERM);
    IS(pthread_mutex_lock(&mutex), 0);
    IS(pthread_cond_timedwait(&real, &mutex, &wrong), EINVAL);
    IS(pthread_cond_clockwait(&real, &mutex, CLOCK_PROCESS_CPUTIME_ID, &past), EINVAL);
    IS(pthread_cond_timedwait(&real, &mutex, &past), ETIMEDOUT);
    time = in_ms(CLOCK_REALTIME, 20);
    IS(pthread_cond_timedwait(&real, &mutex, &time), ETIMEDOUT);
    CHECK(has_come(CLOCK_REALTIME, time));
    time = in_ms(CLOCK_MONOTONIC, 20);
    IS(pthread_cond_timedwait(&monotonic, &mutex, &time), ETIMEDOUT);
    CHECK(has_come(CLOCK_MONOTONIC, time));
    time = in_ms(CLOCK_MONOTONIC, 20);
    IS(pthread_cond_clockwait(&real, &mutex, CLOCK_MONOTONIC, &time), ETIMEDOUT);
    CHECK(has_come(CLOCK_MONOTONIC, time));
    time = in_ms(CLOCK_REALTIME, 20);
    IS(pthread_cond_clockwait(&monotonic, &mutex, CLOCK_REALTIME, &time), ETIMEDOUT);
    CHECK(has_come(CLOCK_REALTIME, time));
    /* The mutex is held again. */
    IS(pthread_mutex_lock(&mutex), EDEADLK);
    IS(pthread_mutex_unlock(&mutex), 0);
    IS(pthread_cond_destroy(&real), 0);
    IS(pthread_cond_destroy(&monotonic), 0);
    return unused;
}

/* Signals race with the ends of waits: the number of signals that were taken is right. */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int tokens, taken, done;
} race = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};

static void *takes_in_time(void *unused) {
    IS(pthread_mutex_lock(&race.mutex), 0);
    while (!race.done) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        int result = pthread_cond_timedwait(&race.cond, &race.mutex, &soon);
        CHECK(result == 0 || result == ETIMEDOUT);
        if (race.tokens > 0) {
            race.tokens--;
            race.taken++;
        }
    }
    IS(pthread_mutex_unlock(&race.mutex), 0);
    return unused;
}

static void races(void) {
    pthread_t threads[SIDES];
    for (int i = 0; i < SIDES; i++)
        threads[i] = start(takes_in_time, NULL);
    for (int i = 0; i < 500; i++) {
        IS(pthread_mutex_lock(&race.mutex), 0);
        race.tokens++;
        IS(pthread_cond_signal(&race.cond), 0);
        if (i % 8 == 0)
            usleep(900);
        IS(pthread_mutex_unlock(&race.mutex), 0);
    }
    for (;;) {
        IS(pthread_mutex_lock(&race.mutex), 0);
        race.done = race.tokens == 0;
        IS(pthread_mutex_unlock(&race.mutex), 0);
        if (race.done)
            break;
        usleep(1000);
    }
    IS(pthread_cond_broadcast(&race.cond), 0);
    for (int i = 0; i < SIDES; i++)
        end(threads[i]);
    IS(race.taken, 500);
    IS(pthread_cond_destroy(&race.cond), 0);
}

/* Cancellation: the handler finds the mutex locked by its thread. */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int waiting, cleaned;
} ends = {PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, PTHREAD_COND_INITIALIZER, 0, 0};

static void clean(void *mutex) {
    ends.cleaned++;
    IS(pthread_mutex_unlock(mutex), 0);
}

static void *waits_for_ever(void *timed) {
    struct timespec far = in_ms(CLOCK_REALTIME, 600000);
    IS(pthread_mutex_lock(&ends.mutex), 0);
    pthread_cleanup_push(clean, &ends.mutex);
    ends.waiting++;
    for (;;)
        if (timed)
            IS(pthread_cond_timedwait(&ends.cond, &ends.mutex, &far), 0);
        else
            IS(pthread_cond_wait(&ends.cond, &ends.mutex), 0);
    pthread_cleanup_pop(1);
    return NULL;
}

static void cancels(void) {
    pthread_t threads[SIDES];
    for (int round = 0; round < 3; round++) {
        int waiting = 0;
        ends.waiting = ends.cleaned = 0;
        for (int i = 0; i < SIDES; i++)
            threads[i] = start(waits_for_ever, i % 2 ? &ends : NULL);
        while (round != 2 && waiting < SIDES) {
            sched_yield();
            IS(pthread_mutex_lock(&ends.mutex), 0);
            waiting = ends.waiting;
            IS(pthread_mutex_unlock(&ends.mutex), 0);
        }
        if (round == 1) {
            /* Moved to the mutex, they are cancelled all the same: at the next wait at the latest. */
            IS(pthread_mutex_lock(&ends.mutex), 0);
            IS(pthread_cond_broadcast(&ends.cond), 0);
        }
        for (int i = 0; i < SIDES; i++)
            IS(pthread_cancel(threads[i]), 0);
        if (round == 1)
            IS(pthread_mutex_unlock(&ends.mutex), 0);
        for (int i = 0; i < SIDES; i++)
            CHECK(end(threads[i]) == PTHREAD_CANCELED);
        IS(ends.cleaned, ends.waiting);
        IS(pthread_mutex_trylock(&ends.mutex), 0);
        IS(pthread_mutex_unlock(&ends.mutex), 0);
    }
    IS(pthread_cond_destroy(&ends.cond), 0);
}

/* POSIX's example: the object goes right after the broadcast, while the mutex is still held. */

struct element {
    pthread_cond_t gone;
    int is_gone, waiting;
};
static pthread_mutex_t elements = PTHREAD_MUTEX_INITIALIZER;

static void *waits_until_gone(void *argument) {
    struct element *element = argument;
    IS(pthread_mutex_lock(&elements), 0);
    element->waiting++;
    /* The element itself may be gone afterwards. */
    IS(pthread_cond_wait(&element->gone, &elements), 0);
    IS(pthread_mutex_unlock(&elements), 0);
    return NULL;
}

static void destroys(void) {
    pthread_t threads[SIDES];
    for (int round = 0; round < 50; round++) {
        struct element *element = calloc(1, sizeof *element);
        int waiting = 0;
        IS(pthread_cond_init(&element->gone, NULL), 0);
        for (int i = 0; i < SIDES; i++)
            threads[i] = start(waits_until_gone, element);
        IS(pthread_mutex_lock(&elements), 0);
        while ((waiting = element->waiting) < SIDES) {
            IS(pthread_mutex_unlock(&elements), 0);
            sched_yield();
            IS(pthread_mutex_lock(&elements), 0);
        }
        if (round % 2)
            IS(pthread_mutex_unlock(&elements), 0);
        IS(pthread_cond_broadcast(&element->gone), 0);
        IS(pthread_cond_destroy(&element->gone), 0);
        memset(element, 0xff, sizeof *element);
        free(element);
        if (round % 2 == 0)
            IS(pthread_mutex_unlock(&elements), 0);
        for (int i = 0; i < SIDES; i++)
            end(threads[i]);
    }
}

/* A recursive mutex that is locked twice is unlocked once only: a signal must not move its waiter to it. */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int waits, woken;
} twice = {PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, PTHREAD_COND_INITIALIZER, 0, 0};

static void *waits_twice_locked(void *unused) {
    IS(pthread_mutex_lock(&twice.mutex), 0);
    IS(pthread_mutex_lock(&twice.mutex), 0);
    __atomic_store_n(&twice.waits, 1, __ATOMIC_SEQ_CST);
    IS(pthread_cond_wait(&twice.cond, &twice.mutex), 0);
    __atomic_store_n(&twice.woken, 1, __ATOMIC_SEQ_CST);
    IS(pthread_mutex_unlock(&twice.mutex), 0);
    IS(pthread_mutex_unlock(&twice.mutex), 0);
    return unused;
}

static void recursion(void) {
    pthread_t thread = start(waits_twice_locked, NULL);
    while (!__atomic_load_n(&twice.waits, __ATOMIC_SEQ_CST))
        sched_yield();
    while (!__atomic_load_n(&twice.woken, __ATOMIC_SEQ_CST)) {
        IS(pthread_cond_signal(&twice.cond), 0);
        usleep(1000);
    }
    end(thread);
}

/* Objects that processes share, and one of which the mutex is not shared. */

static struct common {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int turn;
} *common;

static void *takes_turns(void *argument) {
    int own = (int)(long)argument;
    IS(pthread_mutex_lock(&common->mutex), 0);
    for (int i = 0; i < 200; i++) {
        while (common->turn != own)
            if (i % 2) {
                IS(pthread_cond_wait(&common->cond, &common->mutex), 0);
            } else {
                struct timespec far = in_ms(CLOCK_REALTIME, 600000);
                IS(pthread_cond_timedwait(&common->cond, &common->mutex, &far), 0);
            }
        common->turn = !own;
        IS(pthread_cond_broadcast(&common->cond), 0);
    }
    IS(pthread_mutex_unlock(&common->mutex), 0);
    return NULL;
}

static void unlock(void *mutex) {
    IS(pthread_mutex_unlock(mutex), 0);
}

static void *waits_for_end(void *unused) {
    IS(pthread_mutex_lock(&common->mutex), 0);
    pthread_cleanup_push(unlock, &common->mutex);
    for (;;)
        IS(pthread_cond_wait(&common->cond, &common->mutex), 0);
    pthread_cleanup_pop(1);
    return unused;
}

static void set_up_common(int share_mutex) {
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    IS(pthread_mutexattr_init(&mutex), 0);
    IS(pthread_mutexattr_setpshared(&mutex, share_mutex), 0);
    IS(pthread_mutex_init(&common->mutex, &mutex), 0);
    IS(pthread_condattr_init(&cond), 0);
    IS(pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED), 0);
    IS(pthread_cond_init(&common->cond, &cond), 0);
    common->turn = 0;
}

static void in_other_process(void) {
    int status;
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(common != MAP_FAILED);
    set_up_common(1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        takes_turns((void *)1);
        _exit(0);
    }
    end(start(takes_turns, (void *)0));
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(pthread_cond_destroy(&common->cond), 0);
}

static void shared_by_threads(void) {
    for (int share_mutex = 0; share_mutex < 2; share_mutex++) {
        set_up_common(share_mutex);
        pthread_t other = start(takes_turns, (void *)1);
        takes_turns((void *)0);
        end(other);
        pthread_t cancelled = start(waits_for_end, NULL);
        usleep(10000);
        IS(pthread_cancel(cancelled), 0);
        CHECK(end(cancelled) == PTHREAD_CANCELED);
        IS(pthread_mutex_trylock(&common->mutex), 0);
        IS(pthread_mutex_unlock(&common->mutex), 0);
        IS(pthread_cond_destroy(&common->cond), 0);
    }
}

int main(void) {
    /* Before there is any thread: the fork. */
    in_other_process();
    times(NULL);
    end(start(times, NULL));
    for (int type = 0; type < 5; type++)
        for (int after = 0; after < 2; after++)
            passes_on(type, after);
    broadcasts();
    races();
    cancels();
    destroys();
    recursion();
    shared_by_threads();
    return 0;
}
