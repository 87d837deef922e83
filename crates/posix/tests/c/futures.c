/* Tasks that an async runtime gives to Heddle, by the table `heddle_async`: each wake is one poll, never two at a time,
 * and a poll is a thread: it has its own errno, thread-local variables and number, may wait, and gives way. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

struct table {
    uint32_t version;
    void *(*create)(int (*poll)(void *), void *data);
    void (*wake)(void *task, int by_itself);
    void (*release)(void *task);
    void (*no_preempt_begin)(void);
    void (*no_preempt_end)(void);
};

static const struct table *heddle;
static __thread int local;

struct task {
    void *handle;
    atomic_int in_poll, polls, left;
    void (*body)(struct task *);
};

static atomic_int ended;

static int poll_task(void *data)
{
    struct task *task = data;
    IS(atomic_fetch_add(&task->in_poll, 1), 0);
    atomic_fetch_add(&task->polls, 1);
    int done = atomic_fetch_sub(&task->left, 1) == 1;
    if (task->body)
        task->body(task);
    IS(atomic_fetch_sub(&task->in_poll, 1), 1);
    if (done)
        atomic_fetch_add(&ended, 1);
    return done;
}

static void begin(struct task *task, int polls, void (*body)(struct task *))
{
    atomic_store(&task->left, polls);
    task->body = body;
    task->handle = heddle->create(poll_task, task);
    CHECK(task->handle);
    heddle->wake(task->handle, 0);
}

static void await_ends(int count)
{
    while (atomic_load(&ended) < count)
        usleep(100);
    atomic_store(&ended, 0);
}

/* Wakes itself until it is done. */
static void yields(struct task *task)
{
    if (atomic_load(&task->left))
        heddle->wake(task->handle, 1);
}

#define WAKERS 4
#define WAKES 2000

static struct task woken;

static void *wakes(void *argument)
{
    for (int i = 0; i < WAKES; i++) {
        heddle->wake(woken.handle, 0);
        if (i % 64 == 0)
            sched_yield();
    }
    return argument;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counted;

/* What a thread may do. */
static void like_a_thread(struct task *task)
{
    int mine = (int)(intptr_t)task;
    local = mine;
    errno = mine & 0xff;
    pthread_t self = pthread_self();
    pthread_mutex_lock(&lock);
    long before = counted;
    sched_yield();
    counted = before + 1;
    pthread_mutex_unlock(&lock);
    heddle->no_preempt_begin();
    heddle->no_preempt_end();
    for (volatile int i = 0; i < 200000; i++)
        ;
    IS(local, mine);
    IS(errno, mine & 0xff);
    CHECK(pthread_equal(self, pthread_self()));
    CHECK(gettid() > 0);
    usleep(50);
    yields(task);
}

static atomic_int stop;

static void computes(struct task *task)
{
    (void)task;
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ;
}

static void stops(struct task *task)
{
    (void)task;
    atomic_store(&stop, 1);
}

static void *nothing(void *argument)
{
    return argument;
}

int main(void)
{
    heddle = dlsym(RTLD_DEFAULT, "heddle_async");
    if (!getenv("HEDDLE_POLICY")) {
        CHECK(!heddle);
        return 0;
    }
    CHECK(heddle);
    IS(heddle->version, 1);
    /* Threads first, as in a runtime that creates its workers. */
    pthread_t thread;
    IS(pthread_create(&thread, NULL, nothing, NULL), 0);
    IS(pthread_join(thread, NULL), 0);

    static struct task many[500];
    for (int i = 0; i < 500; i++)
        begin(&many[i], 10, yields);
    await_ends(500);
    for (int i = 0; i < 500; i++) {
        IS(atomic_load(&many[i].polls), 10);
        heddle->release(many[i].handle);
    }

    /* Released before they end, woken or not. */
    for (int i = 0; i < 500; i++) {
        begin(&many[i], 1 << 30, NULL);
        while (i % 2 && !atomic_load(&many[i].polls))
            usleep(10);
        heddle->release(many[i].handle);
        heddle->release(heddle->create(poll_task, &many[i]));
    }

    /* Woken from several threads: a wake leads to a poll that begins after it. */
    begin(&woken, 1 << 30, NULL);
    pthread_t wakers[WAKERS];
    for (int i = 0; i < WAKERS; i++)
        IS(pthread_create(&wakers[i], NULL, wakes, NULL), 0);
    for (int i = 0; i < WAKERS; i++)
        IS(pthread_join(wakers[i], NULL), 0);
    atomic_store(&woken.left, 1);
    heddle->wake(woken.handle, 0);
    await_ends(1);
    CHECK(atomic_load(&woken.polls) <= WAKERS * WAKES + 2);
    /* Too late. */
    heddle->wake(woken.handle, 0);
    heddle->release(woken.handle);

    static struct task threads[40];
    for (int i = 0; i < 40; i++)
        begin(&threads[i], 5, like_a_thread);
    await_ends(40);
    IS(counted, 200);
    for (int i = 0; i < 40; i++)
        heddle->release(threads[i].handle);

    /* Others run while polls compute, as many as there are CPUs and more. */
    static struct task busy[8], last;
    for (int i = 0; i < 8; i++)
        begin(&busy[i], 1, computes);
    usleep(1000);
    begin(&last, 1, stops);
    await_ends(9);
    return 0;
}
