/* Threads in C (libheddle): tasks of Heddle's runtime, which run on a worker for each CPU under a policy, and which
 * the policy preempts. Creating one costs a fraction of a microsecond, and waiting leaves its worker to others.
 * examples/threads-c is a program. Programs that use POSIX threads need none of this: `heddle run` makes tasks of
 * those (docs/run/README.md).
 *
 *     static hd_mutex lock = HD_MUTEX_INIT;
 *
 *     static void *work(void *argument) { ... hd_mutex_lock(&lock); ... return result; }
 *
 *     hd_runtime *runtime = hd_runtime_start("two-queue:quantum=100us", 0);
 *     if (!runtime)
 *         fprintf(stderr, "%s\n", hd_error());
 *     struct hd_task_attr attr = {.name = "scan", .class_ = HD_BEST_EFFORT};
 *     hd_task *task = hd_task_spawn(runtime, &attr, work, argument);
 *     void *result;
 *     hd_task_join(task, &result);
 *     hd_runtime_stop(runtime, 0);
 *
 * Link with -lheddle. Errors and hd_error() are as in client.h. Tasks and ordinary threads may make any call and wait
 * for each other, unless a call says otherwise. Times are nanoseconds of CLOCK_MONOTONIC.
 *
 * A task has its own errno, __thread variables and keys of pthread_key_create. It must not call pthread_exit, and C++
 * exceptions must not leave its function. While it waits in a call of the C library (a socket, a pthread_mutex_t) or
 * in a system call, its CPU goes to others a millisecond or two later. */
#ifndef HEDDLE_THREAD_H
#define HEDDLE_THREAD_H

#include <stddef.h>
#include <stdint.h>

#include "client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Workers that run tasks under a policy. */
typedef struct hd_runtime hd_runtime;

/* Starts a runtime. `policy` is one of those that `heddle policies` lists, with parameters ("fifo",
 * "two-queue:quantum=100us"); NULL: HEDDLE_POLICY in the environment, or work stealing. `workers` is how many tasks
 * run at a time, each on its own CPU; 0: HEDDLE_WORKERS, or as many as the process may use. EINVAL: no such policy,
 * parameter or number. EOPNOTSUPP: the machine lacks FSGSBASE. */
hd_runtime *hd_runtime_start(const char *policy, uint32_t workers);

/* Waits for at most `within` nanoseconds until all tasks have ended, and stops the runtime, which must not be used any
 * more. Returns how many tasks had not ended; they never run again. NULL is ignored. Not for the runtime's own tasks
 * (EINVAL). */
int hd_runtime_stop(hd_runtime *runtime, uint64_t within);

/* A task that can be joined or detached, once. */
typedef struct hd_task hd_task;

/* Classes of tasks for the policy. Policies with more than two queues know other numbers up to 255. */
enum hd_class {
	HD_LATENCY_CRITICAL,
	HD_BEST_EFFORT, /* runs on the CPU time that latency-critical tasks leave */
};

/* What a task begins with. Zero what you do not need. */
struct hd_task_attr {
	const char *name;  /* for reports and debuggers */
	size_t stack;      /* bytes; 0: the runtime's default, 256 KiB. Only touched pages cost memory */
	uint32_t class_;   /* enum hd_class, or another number */
	uint32_t reserved;
	uint64_t deadline; /* when it should be done; 0: no deadline */
	uint64_t expected; /* how many nanoseconds it is expected to run; 0: not known */
};

/* Creates a task of `runtime` that calls entry(argument). NULL as the runtime: that of the calling task; in an
 * ordinary thread, one for the whole process, which is started when it is needed, as by hd_runtime_start(NULL, 0).
 * NULL as `attr`: a task without name and hints. EINVAL: the stack is too large, or the class above 255. */
hd_task *hd_task_spawn(hd_runtime *runtime, const struct hd_task_attr *attr, void *(*entry)(void *), void *argument);

/* Waits until the task has ended, and stores what its function has returned, unless `result` is NULL. The task must
 * not be used any more, except after EINVAL: a task cannot wait for itself. ENOENT: its runtime was stopped before it
 * ended. */
int hd_task_join(hd_task *task, void **result);

/* Gives up the right to join; the task runs on. It must not be used any more. NULL is ignored. */
void hd_task_detach(hd_task *task);

/* Lets other tasks run. */
void hd_task_yield(void);

/* Sleeps until `at`. */
void hd_task_sleep_until(uint64_t at);

/* Begins a section in which the calling task is not preempted; sections nest. For code that holds a lock for which
 * other tasks would wait in the kernel, as a pthread_mutex_t. Keep it shorter than a quantum. */
void hd_no_preempt_begin(void);

/* Ends the section; the task that began it calls this. If its quantum is over and others wait, it yields to them.
 * EINVAL: there is none. */
int hd_no_preempt_end(void);

/* A lock. All zero, it is free; there is nothing to destroy. It must not be moved while in use. */
typedef struct {
	uint64_t opaque[4];
} hd_mutex;

#define HD_MUTEX_INIT {{0}}

/* Takes the lock. It is not recursive: a task that takes it twice waits forever. */
void hd_mutex_lock(hd_mutex *mutex);

/* Takes the lock if it is free. Returns 1, or 0 if it is not. */
int hd_mutex_trylock(hd_mutex *mutex);

/* Releases the lock. The caller holds it. */
void hd_mutex_unlock(hd_mutex *mutex);

/* A condition variable. All zero, none waits; there is nothing to destroy. It must not be moved while in use. */
typedef struct {
	uint64_t opaque[3];
} hd_cond;

#define HD_COND_INIT {{0}}

/* Releases the mutex, which the caller holds, waits to be woken, and takes the mutex again. Check the condition in a
 * loop: it may have changed again by then. */
void hd_cond_wait(hd_cond *cond, hd_mutex *mutex);

/* The same, until `until` at the latest. Returns 1 if it was woken, 0 if the time has passed. */
int hd_cond_wait_until(hd_cond *cond, hd_mutex *mutex, uint64_t until);

/* Wake the task or thread that has waited longest, or all. */
void hd_cond_signal(hd_cond *cond);
void hd_cond_broadcast(hd_cond *cond);

#ifdef __cplusplus
}
#endif

#endif
