/* Makes every call of heddle/thread.h. Prints `fine`, or what is not so. */
#include <errno.h>
#include <heddle/thread.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what) do { \
	if (!(what)) { \
		printf("line %d: not so: %s (%s)\n", __LINE__, #what, hd_error()); \
		exit(1); \
	} \
} while (0)

#define MS 1000000ull

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static hd_runtime *runtime;
static hd_mutex lock = HD_MUTEX_INIT;
static hd_cond changed = HD_COND_INIT;

static void *twice(void *argument)
{
	return (char *)argument + (uintptr_t)argument;
}

static hd_task *spawn(void *(*entry)(void *), void *argument)
{
	hd_task *task = hd_task_spawn(runtime, NULL, entry, argument);

	CHECK(task);
	return task;
}

static void *result_of(hd_task *task)
{
	void *result = &task;

	CHECK(hd_task_join(task, &result) == 0);
	return result;
}

/* Mutual exclusion: a plain counter, and a place where others run in between. */
enum { COUNTERS = 40, ROUNDS = 500 };
static int counter;

static void *count(void *argument)
{
	(void)argument;
	for (int i = 0; i < ROUNDS; i++) {
		hd_mutex_lock(&lock);
		int seen = counter;
		if (i % 16 == 0)
			hd_task_yield();
		counter = seen + 1;
		hd_mutex_unlock(&lock);
	}
	return NULL;
}

static void tasks_exclude_each_other(void)
{
	hd_task *tasks[COUNTERS];

	for (int i = 0; i < COUNTERS; i++)
		tasks[i] = spawn(count, NULL);
	count(NULL); /* an ordinary thread, too */
	for (int i = 0; i < COUNTERS; i++)
		CHECK(hd_task_join(tasks[i], NULL) == 0);
	CHECK(counter == (COUNTERS + 1) * ROUNDS);
	CHECK(hd_mutex_trylock(&lock) == 1 && hd_mutex_trylock(&lock) == 0);
	hd_mutex_unlock(&lock);
}

/* A ball that a task and this thread throw to each other. */
static int ball;

static void throw_to(int other)
{
	for (int i = 0; i < 200; i++) {
		hd_mutex_lock(&lock);
		while (ball == other)
			hd_cond_wait(&changed, &lock);
		ball = other;
		hd_cond_signal(&changed);
		hd_mutex_unlock(&lock);
	}
}

static void *player(void *argument)
{
	(void)argument;
	throw_to(0);
	return NULL;
}

static void *wait_for_start(void *argument)
{
	(void)argument;
	hd_mutex_lock(&lock);
	while (ball != 7)
		hd_cond_wait(&changed, &lock);
	hd_mutex_unlock(&lock);
	return NULL;
}

static void conditions_wake_tasks_and_threads(void)
{
	hd_task *task = spawn(player, NULL), *others[8];
	uint64_t until;

	throw_to(1);
	CHECK(result_of(task) == NULL);
	for (int i = 0; i < 8; i++)
		others[i] = spawn(wait_for_start, NULL);
	hd_mutex_lock(&lock);
	ball = 7;
	hd_cond_broadcast(&changed);
	hd_mutex_unlock(&lock);
	for (int i = 0; i < 8; i++)
		CHECK(result_of(others[i]) == NULL);
	hd_mutex_lock(&lock);
	until = now() + MS;
	CHECK(hd_cond_wait_until(&changed, &lock, until) == 0 && now() >= until);
	CHECK(hd_mutex_trylock(&lock) == 0);
	hd_mutex_unlock(&lock);
}

static __thread int own;
static pthread_key_t key;
static int destroyed;

static void destroy(void *value)
{
	__atomic_fetch_add((int *)value, 1, __ATOMIC_SEQ_CST);
}

static void *has_state_of_its_own(void *argument)
{
	uint64_t until = now() + MS;

	CHECK(own == 0 && errno == 0);
	own = errno = (int)(uintptr_t)argument;
	CHECK(pthread_setspecific(key, &destroyed) == 0);
	hd_task_sleep_until(until);
	CHECK(now() >= until);
	CHECK(own == (int)(uintptr_t)argument && errno == own);
	return NULL;
}

static void tasks_have_state_of_their_own(void)
{
	hd_task *a, *b;

	CHECK(pthread_key_create(&key, destroy) == 0);
	a = spawn(has_state_of_its_own, (void *)1);
	b = spawn(has_state_of_its_own, (void *)2);
	result_of(a);
	result_of(b);
	CHECK(destroyed == 2);
}

/* What ran in which order. */
static char order[8];

static void *note(void *argument)
{
	strcat(order, argument);
	return NULL;
}

static hd_task *spawn_with(struct hd_task_attr attr, const char *name)
{
	hd_task *task;

	attr.name = name;
	task = hd_task_spawn(NULL, &attr, note, (void *)name);
	CHECK(task);
	return task;
}

static void *orders_by_class(void *argument)
{
	hd_task *tasks[] = {
		spawn_with((struct hd_task_attr){.class_ = HD_BEST_EFFORT}, "b"),
		spawn_with((struct hd_task_attr){.class_ = HD_LATENCY_CRITICAL}, "l"),
	};

	(void)argument;
	result_of(tasks[0]);
	result_of(tasks[1]);
	return NULL;
}

static void *orders_by_deadline(void *argument)
{
	uint64_t at = now() + 1000000 * MS;
	hd_task *tasks[] = {
		spawn_with((struct hd_task_attr){.deadline = at + 2}, "3"),
		spawn_with((struct hd_task_attr){.deadline = at}, "1"),
		spawn_with((struct hd_task_attr){.deadline = at + 1}, "2"),
	};

	(void)argument;
	for (int i = 0; i < 3; i++)
		result_of(tasks[i]);
	return NULL;
}

/* Runs `entry` on one worker under `policy`. */
static void under(const char *policy, void *(*entry)(void *))
{
	runtime = hd_runtime_start(policy, 1);
	CHECK(runtime);
	memset(order, 0, sizeof(order));
	result_of(spawn(entry, NULL));
	CHECK(hd_runtime_stop(runtime, 0) == 0);
}

static int has_run;

static void *mark(void *argument)
{
	__atomic_store_n(&has_run, 1, __ATOMIC_SEQ_CST);
	return argument;
}

/* The other task is runnable all the time, and the quantum is long over. */
static void *is_not_preempted(void *argument)
{
	hd_task *other;
	uint64_t until;

	(void)argument;
	CHECK(hd_no_preempt_end() == -EINVAL && strstr(hd_error(), "no section"));
	hd_no_preempt_begin();
	hd_no_preempt_begin();
	other = hd_task_spawn(NULL, NULL, mark, NULL);
	CHECK(other);
	for (until = now() + 10 * MS; now() < until;)
		;
	CHECK(hd_no_preempt_end() == 0);
	CHECK(!__atomic_load_n(&has_run, __ATOMIC_SEQ_CST));
	CHECK(hd_no_preempt_end() == 0);
	CHECK(__atomic_load_n(&has_run, __ATOMIC_SEQ_CST));
	result_of(other);
	return NULL;
}

static hd_task *own_task;
static int may_wait;

static void *waits_for_itself(void *argument)
{
	(void)argument;
	while (!__atomic_load_n(&may_wait, __ATOMIC_SEQ_CST))
		hd_task_yield();
	CHECK(hd_task_join(own_task, NULL) == -EINVAL && strstr(hd_error(), "own end"));
	CHECK(hd_runtime_stop(runtime, 0) == -EINVAL && strstr(hd_error(), "own runtime"));
	return NULL;
}

static void *sleeps(void *argument)
{
	hd_task_sleep_until(UINT64_MAX);
	return argument;
}

static void mistakes_are_explained(void)
{
	struct hd_task_attr wrong_class = {.class_ = 256}, too_large = {.stack = (size_t)1 << 40};
	hd_task *sleeper;

	CHECK(!hd_runtime_start("nonsense", 0) && strstr(hd_error(), "nonsense"));
	CHECK(!hd_runtime_start("fifo", 100000) && strstr(hd_error(), "100000 workers"));
	CHECK(!hd_task_spawn(runtime, &wrong_class, twice, NULL) && strstr(hd_error(), "255"));
	CHECK(!hd_task_spawn(runtime, &too_large, twice, NULL) && strstr(hd_error(), "too large"));
	CHECK(!hd_task_spawn(runtime, NULL, NULL, NULL) && strstr(hd_error(), "NULL"));
	CHECK(hd_task_join(NULL, NULL) == -EINVAL && hd_runtime_stop(NULL, 0) == 0);
	hd_task_detach(NULL);
	own_task = spawn(waits_for_itself, NULL);
	__atomic_store_n(&may_wait, 1, __ATOMIC_SEQ_CST);
	CHECK(result_of(own_task) == NULL);
	sleeper = spawn(sleeps, NULL);
	hd_task_detach(spawn(sleeps, NULL));
	CHECK(hd_runtime_stop(runtime, 0) == 2);
	CHECK(hd_task_join(sleeper, NULL) == -ENOENT && strstr(hd_error(), "stopped"));
}

int main(void)
{
	hd_task *of_process = hd_task_spawn(NULL, NULL, twice, (void *)21);

	CHECK(of_process && result_of(of_process) == (void *)42);
	runtime = hd_runtime_start(NULL, 0);
	CHECK(runtime && result_of(spawn(twice, (void *)4)) == (void *)8);
	tasks_exclude_each_other();
	conditions_wake_tasks_and_threads();
	tasks_have_state_of_their_own();
	mistakes_are_explained();
	under("priority", orders_by_class);
	CHECK(strcmp(order, "lb") == 0);
	under("edf", orders_by_deadline);
	CHECK(strcmp(order, "123") == 0);
	under("two-queue:quantum=100us", is_not_preempted);
	puts("fine");
	return 0;
}
