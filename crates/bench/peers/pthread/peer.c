/* The operations of `heddle bench threads` on POSIX threads: what every program gets without a runtime.
 *
 * Usage: peer OP MILLISECONDS; prints the CPU nanoseconds per operation. The runner pins the process to one
 * CPU, so "one worker" means the same as for a user-level runtime. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void op_fn(uint64_t n);

static void check(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "%s: %s\n", what, strerror(error));
		exit(1);
	}
}

static pthread_t start(void *(*body)(void *), void *arg)
{
	pthread_t thread;
	check(pthread_create(&thread, NULL, body, arg), "pthread_create");
	return thread;
}

static void join(pthread_t thread)
{
	check(pthread_join(thread, NULL), "pthread_join");
}

/* Two threads take turns. */
static void *yielder(void *arg)
{
	for (uint64_t left = *(uint64_t *)arg; left > 0; left--)
		sched_yield();
	return NULL;
}

static void op_yield(uint64_t n)
{
	uint64_t each = n / 2;
	pthread_t a = start(yielder, &each), b = start(yielder, &each);
	join(a);
	join(b);
}

static void *nothing(void *arg)
{
	return arg;
}

static void op_spawn_join(uint64_t n)
{
	while (n-- > 0)
		join(start(nothing, NULL));
}

/* Detached threads, as in Skyloft's benchmark: a yield after each lets it run. */
static atomic_uint_fast64_t finished;

static void *count(void *arg)
{
	atomic_fetch_add_explicit(&finished, 1, memory_order_relaxed);
	return arg;
}

static void op_spawn_yield(uint64_t n)
{
	pthread_attr_t detached;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	atomic_store(&finished, 0);
	for (uint64_t i = 0; i < n;) {
		pthread_t thread;
		/* The kernel may let many wait before it runs one: the limit on threads is then a reason to yield. */
		i += pthread_create(&thread, &detached, count, NULL) == 0;
		sched_yield();
	}
	while (atomic_load_explicit(&finished, memory_order_relaxed) < n)
		sched_yield();
	pthread_attr_destroy(&detached);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void op_mutex(uint64_t n)
{
	/* A process that never had a second thread gets a lock without atomics; such programs need no mutex. */
	join(start(nothing, NULL));
	while (n-- > 0) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
}

/* Two threads wake each other in turn: an operation is one wake-up and the switch that follows. */
static pthread_cond_t turn_of[2] = { PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER };
static int turn;
static uint64_t rounds;

static void *player(void *arg)
{
	int me = (int)(intptr_t)arg;
	pthread_mutex_lock(&lock);
	for (uint64_t i = 0; i < rounds; i++) {
		while (turn != me)
			pthread_cond_wait(&turn_of[me], &lock);
		turn = !me;
		pthread_cond_signal(&turn_of[!me]);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void op_condvar(uint64_t n)
{
	rounds = n / 2;
	turn = 0;
	pthread_t a = start(player, (void *)0), b = start(player, (void *)1);
	join(a);
	join(b);
}

static double cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double ns_per_op(op_fn *op, uint64_t n)
{
	double begin = cpu_ns();
	op(n);
	return (cpu_ns() - begin) / (double)n;
}

static op_fn *find(const char *name)
{
	static const struct { const char *name; op_fn *op; } table[] = {
		{ "yield", op_yield }, { "spawn_join", op_spawn_join }, { "spawn_yield", op_spawn_yield },
		{ "mutex", op_mutex }, { "condvar", op_condvar },
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (strcmp(table[i].name, name) == 0)
			return table[i].op;
	fprintf(stderr, "no such operation: %s\n", name);
	exit(2);
}

/* Warm up, estimate, then run for about the time that was asked for: the same in every peer. */
int main(int argc, char **argv)
{
	const uint64_t warm_up = 2000;
	if (argc != 3) {
		fprintf(stderr, "usage: peer OP MILLISECONDS\n");
		return 2;
	}
	op_fn *op = find(argv[1]);
	ns_per_op(op, warm_up);
	double estimate = ns_per_op(op, warm_up);
	uint64_t n = (uint64_t)(atof(argv[2]) * 1e6 / (estimate + 0.1));
	printf("%.3f\n", ns_per_op(op, n < warm_up ? warm_up : n));
	return 0;
}
